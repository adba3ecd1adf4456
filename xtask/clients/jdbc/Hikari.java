// HikariCP over pgjdbc: a pool with an isolation level, broken connections, use from many threads.
import com.zaxxer.hikari.*;
import java.sql.*;
import java.util.concurrent.*;

public class Hikari {
    public static void main(String[] args) throws Exception {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://127.0.0.1:" + args[0] + "/canon");
        config.setUsername("canon");
        config.setMaximumPoolSize(4);
        config.setTransactionIsolation("TRANSACTION_REPEATABLE_READ");
        config.setConnectionInitSql("SET application_name = 'pool'");
        try (HikariDataSource pool = new HikariDataSource(config)) {
            try (Connection c = pool.getConnection()) {
                c.createStatement().execute("CREATE TABLE hikari (id int PRIMARY KEY, thread text)");
            }
            ExecutorService threads = Executors.newFixedThreadPool(8);
            var all = new java.util.ArrayList<Future<?>>();
            for (int i = 0; i < 200; i++) {
                int id = i;
                all.add(threads.submit(() -> {
                    try (Connection c = pool.getConnection()) {
                        PreparedStatement s = c.prepareStatement("INSERT INTO hikari VALUES (?, current_setting('application_name'))");
                        s.setInt(1, id);
                        s.execute();
                    }
                    return null;
                }));
            }
            for (Future<?> one : all) one.get();
            threads.shutdown();
            try (Connection c = pool.getConnection(); Connection other = pool.getConnection()) {
                int pid = c.unwrap(org.postgresql.PGConnection.class).getBackendPID();
                other.createStatement().execute("SELECT pg_terminate_backend(" + pid + ")");
                try {
                    c.createStatement().execute("SELECT 1");
                    throw new AssertionError("the session was ended");
                } catch (SQLException e) {
                    if (!e.getSQLState().equals("57P01") && !e.getSQLState().startsWith("08")) throw e;
                }
            }
            try (Connection c = pool.getConnection()) {
                if (c.getTransactionIsolation() != Connection.TRANSACTION_REPEATABLE_READ) throw new AssertionError("the level");
                ResultSet r = c.createStatement().executeQuery("SELECT count(*), min(thread) FROM hikari");
                r.next();
                if (r.getInt(1) != 200 || !r.getString(2).equals("pool")) throw new AssertionError("200 rows of the pool");
            }
        }
    }
}
