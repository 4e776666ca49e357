import java.io.File;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Iterator;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * Starts a ZooKeeper, fills a queue of each kind with Curator, prints the address, and waits until its input ends.
 *
 * Usage: CuratorQueues.java DIRECTORY
 */
public class CuratorQueues {
    static final QueueSerializer<String> TEXT = new QueueSerializer<>() {
        public byte[] serialize(String item) {
            return item.getBytes();
        }

        public String deserialize(byte[] bytes) {
            return new String(bytes);
        }
    };

    static MultiItem<String> items(String... given) {
        Iterator<String> left = Arrays.asList(given).iterator();
        return () -> left.hasNext() ? left.next() : null;
    }

    static QueueBuilder<String> builder(CuratorFramework client, QueueConsumer<String> consumer, String path) {
        return QueueBuilder.builder(client, consumer, TEXT, path).putInBackground(false);
    }

    /** Fails at its first item, so that Curator requeues it, and then holds an item for ever. */
    static class Failing implements QueueConsumer<String> {
        final CountDownLatch requeued = new CountDownLatch(1);
        boolean failed = false;

        public void consumeMessage(String item) throws Exception {
            if (!failed) {
                failed = true;
                throw new Exception("failed");
            }
            requeued.countDown();
            new CountDownLatch(1).await();
        }

        public void stateChanged(CuratorFramework client, ConnectionState state) {}
    }

    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        ServerCnxnFactory server = ServerCnxnFactory.createFactory(new InetSocketAddress("127.0.0.1", 0), 100);
        server.startup(new ZooKeeperServer(directory, directory, 2000));
        String address = "127.0.0.1:" + server.getLocalPort();
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, new RetryOneTime(100));
        client.start();

        var plain = builder(client, null, "/queue").buildQueue();
        plain.start();
        plain.put("a");
        plain.putMulti(items("b", "c", ""));
        plain.put("d");

        Failing failing = new Failing();
        var consumed = builder(client, failing, "/priority").lockPath("/locks").buildPriorityQueue(0);
        consumed.start();
        consumed.put("requeued", 5);
        failing.requeued.await();
        var priority = builder(client, null, "/priority").buildPriorityQueue(0);
        priority.start();
        priority.put("7", 7);
        priority.put("0", 0);
        priority.putMulti(items("-3", "-3 again"), -3);
        priority.put("7 again", 7);
        priority.put("largest", Integer.MAX_VALUE);

        var delay = builder(client, null, "/delay").buildDelayQueue();
        delay.start();
        delay.put("in 2031", 1937000000000L);
        delay.put("now", 1000L);

        var id = builder(client, null, "/id").buildIdQueue();
        id.start();
        id.put("x", "17");
        id.put("y", "a/b");

        var simple = new SimpleDistributedQueue(client, "/simple");
        simple.offer("first".getBytes());
        simple.offer("second".getBytes());

        System.out.println(address);
        System.in.read();
        System.exit(0);
    }
}
