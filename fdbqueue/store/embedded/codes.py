"""FoundationDB's numbered errors, as far as a client can meet them: code, name and text.

Codes and texts are part of the interface: programs compare the first and print the second.
"""

from __future__ import annotations

_TABLE: dict[int, tuple[str, str]] = {
    0: ("success", "Success"),
    1: ("end_of_stream", "End of stream"),
    1000: ("operation_failed", "Operation failed"),
    1004: ("timed_out", "Operation timed out"),
    1006: ("all_alternatives_failed", "All alternatives failed"),
    1007: ("transaction_too_old", "Transaction is too old to perform reads or be committed"),
    1009: ("future_version", "Request for future version"),
    1020: ("not_committed", "Transaction not committed due to conflict with another transaction"),
    1021: ("commit_unknown_result", "Transaction may or may not have committed"),
    1022: (
        "commit_unknown_result_fatal",
        "Idempotency id for transaction may have expired, so the commit status of the "
        "transaction cannot be determined",
    ),
    1025: ("transaction_cancelled", "Operation aborted because the transaction was cancelled"),
    1026: ("connection_failed", "Network connection failed"),
    1027: ("coordinators_changed", "Coordination servers have changed"),
    1029: ("watch_cancelled", "Watch cancelled because storage server watch limit exceeded"),
    1031: ("transaction_timed_out", "Operation aborted because the transaction timed out"),
    1032: ("too_many_watches", "Too many watches currently set"),
    1033: ("locality_information_unavailable", "Locality information not available"),
    1034: ("watches_disabled", "Watches cannot be set if read your writes is disabled"),
    1036: ("accessed_unreadable", "Read or wrote an unreadable key"),
    1037: ("process_behind", "Storage process does not have recent mutations"),
    1038: ("database_locked", "Database is locked"),
    1039: ("cluster_version_changed", "The protocol version of the cluster has changed"),
    1040: ("external_client_already_loaded", "External client has already been loaded"),
    1041: ("lookup_failed", "DNS lookup failed"),
    1042: ("commit_proxy_memory_limit_exceeded", "CommitProxy commit memory limit exceeded"),
    1043: ("shutdown_in_progress", "Operation no longer supported due to shutdown"),
    1044: ("serialization_failed", "Failed to deserialize an object"),
    1051: ("batch_transaction_throttled", "Batch GRV request rate limit exceeded"),
    1078: ("grv_proxy_memory_limit_exceeded", "GetReadVersion proxy memory limit exceeded"),
    1079: ("blob_granule_request_failed", "BlobGranule request failed"),
    1100: ("broken_promise", "Broken promise"),
    1101: ("operation_cancelled", "Asynchronous operation cancelled"),
    1102: ("future_released", "Future has been released"),
    1103: ("connection_leaked", "Connection object leaked"),
    1104: ("never_reply", "Never reply to the request"),
    1105: ("retry", "Retry operation"),
    1213: ("tag_throttled", "Transaction tag is being throttled"),
    1223: ("proxy_tag_throttled", "Exceeded maximum proxy tag throttling duration"),
    1225: ("storage_quota_exceeded", "Exceeded the maximum storage quota allocated to the tenant."),
    1500: ("platform_error", "Platform error"),
    1501: ("large_alloc_failed", "Large block allocation failed"),
    1502: ("performance_counter_error", "QueryPerformanceCounter error"),
    1503: ("bad_allocator", "Null allocator was used to allocate memory"),
    1510: ("io_error", "Disk i/o operation failed"),
    1511: ("file_not_found", "File not found"),
    1512: ("bind_failed", "Unable to bind to network"),
    1513: ("file_not_readable", "File could not be read"),
    1514: ("file_not_writable", "File could not be written"),
    1515: (
        "no_cluster_file_found",
        "No cluster file found in current directory or default location",
    ),
    1516: ("file_too_large", "File too large to be read"),
    1521: ("io_timeout", "A disk IO operation failed to complete in a timely manner"),
    1522: ("file_corrupt", "A structurally corrupt data file was detected"),
    2000: ("client_invalid_operation", "Invalid API call"),
    2002: ("commit_read_incomplete", "Commit with incomplete read"),
    2004: ("key_outside_legal_range", "Key outside legal range"),
    2005: ("inverted_range", "Range begin key larger than end key"),
    2006: ("invalid_option_value", "Option set with an invalid value"),
    2007: ("invalid_option", "Option not valid in this context"),
    2008: ("network_not_setup", "Action not possible before the network is configured"),
    2009: ("network_already_setup", "Network can be configured only once"),
    2010: ("read_version_already_set", "Transaction already has a read version set"),
    2011: ("version_invalid", "Version not valid"),
    2012: ("range_limits_invalid", "Range limits not valid"),
    2013: ("invalid_database_name", "Database name must be 'DB'"),
    2014: ("attribute_not_found", "Attribute not found"),
    2015: ("future_not_set", "Future not ready"),
    2016: ("future_not_error", "Future not an error"),
    2017: ("used_during_commit", "Operation issued while a commit was outstanding"),
    2018: ("invalid_mutation_type", "Unrecognized atomic mutation type"),
    2019: ("attribute_too_large", "Attribute too large for type int"),
    2020: ("transaction_invalid_version", "Transaction does not have a valid commit version"),
    2021: (
        "no_commit_version",
        "Transaction is read-only and therefore does not have a commit version",
    ),
    2022: (
        "environment_variable_network_option_failed",
        "Environment variable network option could not be set",
    ),
    2023: ("transaction_read_only", "Attempted to commit a transaction specified as read-only"),
    2025: ("network_cannot_be_restarted", "Network can only be started once"),
    2026: (
        "blocked_from_network_thread",
        "Detected a deadlock in a callback called from the network thread",
    ),
    2048: (
        "failed_to_create_checkpoint_shard_metadata",
        "Failed to dump shard metadata for a checkpoint to a sst file",
    ),
    2100: ("incompatible_protocol_version", "Incompatible protocol version"),
    2101: ("transaction_too_large", "Transaction exceeds byte limit"),
    2102: ("key_too_large", "Key length exceeds limit"),
    2103: ("value_too_large", "Value length exceeds limit"),
    2104: ("connection_string_invalid", "Connection string invalid"),
    2105: ("address_in_use", "Local address in use"),
    2106: ("invalid_local_address", "Invalid local address"),
    2107: ("tls_error", "TLS error"),
    2108: ("unsupported_operation", "Operation is not supported"),
    2109: ("too_many_tags", "Too many tags set on transaction"),
    2110: ("tag_too_long", "Tag set on transaction is too long"),
    2111: ("too_many_tag_throttles", "Too many tag throttles have been created"),
    2112: (
        "special_keys_cross_module_read",
        "Special key space range read crosses modules. Refer to the "
        "`special_key_space_relaxed' transaction option for more details.",
    ),
    2113: (
        "special_keys_no_module_found",
        "Special key space range read does not intersect a module. Refer to the "
        "`special_key_space_relaxed' transaction option for more details.",
    ),
    2114: (
        "special_keys_write_disabled",
        "Special Key space is not allowed to write by default. Refer to the "
        "`special_key_space_enable_writes` transaction option for more details.",
    ),
    2115: (
        "special_keys_no_write_module_found",
        "Special key space key or keyrange in set or clear does not intersect a module",
    ),
    2116: ("special_keys_cross_module_clear", "Special key space clear crosses modules"),
    2117: (
        "special_keys_api_failure",
        "Api call through special keys failed. For more information, call get on "
        "special key 0xff0xff/error_message to get a json string of the error "
        "message.",
    ),
    2123: ("no_external_client_provided", "No external client library provided."),
    2124: ("all_external_clients_failed", "All external clients have failed."),
    2125: (
        "incompatible_client",
        "None of the available clients match the protocol version of the cluster.",
    ),
    2130: ("tenant_name_required", "Tenant name must be specified to access data in the cluster"),
    2131: ("tenant_not_found", "Tenant does not exist"),
    2132: ("tenant_already_exists", "A tenant with the given name already exists"),
    2133: ("tenant_not_empty", "Cannot delete a non-empty tenant"),
    2134: ("invalid_tenant_name", "Tenant name cannot begin with \\xff"),
    2135: (
        "tenant_prefix_allocator_conflict",
        "The database already has keys stored at the prefix allocated for the tenant",
    ),
    2136: ("tenants_disabled", "Tenants have been disabled in the cluster"),
    2138: ("illegal_tenant_access", "Illegal tenant access"),
    2139: ("invalid_tenant_group_name", "Tenant group name cannot begin with \\xff"),
    2140: ("invalid_tenant_configuration", "Tenant configuration is invalid"),
    2141: (
        "cluster_no_capacity",
        "Cluster does not have capacity to perform the specified operation",
    ),
    2142: ("tenant_removed", "The tenant was removed"),
    2143: ("invalid_tenant_state", "Operation cannot be applied to tenant in its current state"),
    2144: ("tenant_locked", "Tenant is locked"),
    2200: ("api_version_unset", "API version is not set"),
    2201: ("api_version_already_set", "API version may be set only once"),
    2202: ("api_version_invalid", "API version not valid"),
    2203: ("api_version_not_supported", "API version not supported"),
    2204: ("api_function_missing", "Failed to load a required FDB API function."),
    2210: (
        "exact_mode_without_limits",
        "EXACT streaming mode requires limits, but none were given",
    ),
    2250: ("invalid_tuple_data_type", "Unrecognized data type in packed tuple"),
    2251: ("invalid_tuple_index", "Tuple does not have element at specified index"),
    2252: ("key_not_in_subspace", "Cannot unpack key that is not in subspace"),
    2253: (
        "manual_prefixes_not_enabled",
        "Cannot specify a prefix unless manual prefixes are enabled",
    ),
    2254: ("prefix_in_partition", "Cannot specify a prefix in a partition"),
    2255: ("cannot_open_root_directory", "Root directory cannot be opened"),
    2256: ("directory_already_exists", "Directory already exists"),
    2257: ("directory_does_not_exist", "Directory does not exist"),
    2258: ("parent_directory_does_not_exist", "Directory's parent does not exist"),
    2259: ("mismatched_layer", "Directory has already been created with a different layer string"),
    2260: ("invalid_directory_layer_metadata", "Invalid directory layer metadata"),
    2261: (
        "cannot_move_directory_between_partitions",
        "Directory cannot be moved between partitions",
    ),
    2262: ("cannot_use_partition_as_subspace", "Directory partition cannot be used as subspace"),
    2263: (
        "incompatible_directory_version",
        "Directory layer was created with an incompatible version",
    ),
    2264: (
        "directory_prefix_not_empty",
        "Database has keys stored at the prefix chosen by the automatic prefix allocator",
    ),
    2265: ("directory_prefix_in_use", "Directory layer already has a conflicting prefix"),
    2266: ("invalid_destination_directory", "Target directory is invalid"),
    2267: ("cannot_modify_root_directory", "Root directory cannot be modified"),
    2268: ("invalid_uuid_size", "UUID is not sixteen bytes"),
    2269: ("invalid_versionstamp_size", "Versionstamp is not exactly twelve bytes"),
    4000: ("unknown_error", "An unknown error occurred"),
    4100: ("internal_error", "An internal error occurred"),
    4200: ("not_implemented", "Not implemented yet"),
    6000: ("permission_denied", "Client tried to access unauthorized data"),
}


class Fault(Exception):
    """A numbered error on its way from the engine to the call or future that reports it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _code(name: str) -> int:
    return next(code for code, (known, _) in _TABLE.items() if known == name)


TOO_OLD = _code("transaction_too_old")
FUTURE_VERSION = _code("future_version")
NOT_COMMITTED = _code("not_committed")
COMMIT_UNKNOWN = _code("commit_unknown_result")
CANCELLED = _code("transaction_cancelled")
TIMED_OUT = _code("transaction_timed_out")
TOO_MANY_WATCHES = _code("too_many_watches")
WATCHES_DISABLED = _code("watches_disabled")
UNREADABLE = _code("accessed_unreadable")
PROCESS_BEHIND = _code("process_behind")
BROKEN_PROMISE = _code("broken_promise")
OPERATION_CANCELLED = _code("operation_cancelled")
FUTURE_RELEASED = _code("future_released")
INVALID_OPERATION = _code("client_invalid_operation")
OUTSIDE_LEGAL_RANGE = _code("key_outside_legal_range")
INVERTED_RANGE = _code("inverted_range")
INVALID_OPTION_VALUE = _code("invalid_option_value")
INVALID_OPTION = _code("invalid_option")
NETWORK_NOT_SETUP = _code("network_not_setup")
NETWORK_ALREADY_SETUP = _code("network_already_setup")
READ_VERSION_SET = _code("read_version_already_set")
VERSION_INVALID = _code("version_invalid")
LIMITS_INVALID = _code("range_limits_invalid")
FUTURE_NOT_SET = _code("future_not_set")
USED_DURING_COMMIT = _code("used_during_commit")
INVALID_MUTATION = _code("invalid_mutation_type")
INVALID_VERSION = _code("transaction_invalid_version")
NO_COMMIT_VERSION = _code("no_commit_version")
READ_ONLY = _code("transaction_read_only")
TRANSACTION_TOO_LARGE = _code("transaction_too_large")
KEY_TOO_LARGE = _code("key_too_large")
VALUE_TOO_LARGE = _code("value_too_large")
TOO_MANY_TAGS = _code("too_many_tags")
TAG_TOO_LONG = _code("tag_too_long")
CROSS_MODULE_READ = _code("special_keys_cross_module_read")
NO_MODULE = _code("special_keys_no_module_found")
SPECIAL_WRITE_DISABLED = _code("special_keys_write_disabled")
NO_WRITE_MODULE = _code("special_keys_no_write_module_found")
TENANT_NOT_FOUND = _code("tenant_not_found")
TENANTS_DISABLED = _code("tenants_disabled")
VERSION_ALREADY_SET = _code("api_version_already_set")
VERSION_BAD = _code("api_version_invalid")
VERSION_UNSUPPORTED = _code("api_version_not_supported")
EXACT_WITHOUT_LIMITS = _code("exact_mode_without_limits")
UNKNOWN_ERROR = _code("unknown_error")

_MAYBE_COMMITTED = frozenset(map(_code, ("commit_unknown_result", "cluster_version_changed")))
_RETRYABLE_NOT_COMMITTED = frozenset(
    map(
        _code,
        (
            "not_committed",
            "transaction_too_old",
            "future_version",
            "database_locked",
            "grv_proxy_memory_limit_exceeded",
            "commit_proxy_memory_limit_exceeded",
            "batch_transaction_throttled",
            "process_behind",
            "tag_throttled",
            "proxy_tag_throttled",
        ),
    )
)
# What on_error answers with a delay that grows, and with one that does not.
BACKOFF = (_RETRYABLE_NOT_COMMITTED | {COMMIT_UNKNOWN, _code("blob_granule_request_failed")}) - {
    TOO_OLD,
    FUTURE_VERSION,
}
SHORT_DELAY = frozenset({TOO_OLD, FUTURE_VERSION})

_PREDICATES = {
    50000: _MAYBE_COMMITTED | _RETRYABLE_NOT_COMMITTED,
    50001: _MAYBE_COMMITTED,
    50002: _RETRYABLE_NOT_COMMITTED,
}


_HIGHEST = 30_000


def text(code: int) -> str:
    """The message of an error code, as fdb_get_error gives it."""
    if code in _TABLE:
        return _TABLE[code][1]
    return "UNKNOWN_ERROR" if 0 <= code <= 0xFFFF else _TABLE[UNKNOWN_ERROR][1]


def validated(code: int) -> int:
    """An error code passed by a program; anything else counts as an unknown error."""
    return code if 0 <= code <= _HIGHEST else UNKNOWN_ERROR


def predicate(test: int, code: int) -> bool:
    """Whether an error code passes a predicate (retryable, maybe committed, ...)."""
    return code in _PREDICATES.get(test, ())
