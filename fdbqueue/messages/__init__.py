"""Operations on messages, each a transactional function over a queue's keys."""
