// pgjdbc: batches, generated keys, metadata.
import java.sql.*;
import java.util.*;

public class Jdbc {
    static void want(Object got, Object wanted) {
        if (!Objects.equals(String.valueOf(got), String.valueOf(wanted))) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    static List<String> column(ResultSet r, String name) throws SQLException {
        List<String> all = new ArrayList<>();
        while (r.next()) all.add(r.getString(name));
        return all;
    }

    public static void main(String[] args) throws Exception {
        try (Connection c = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + args[0] + "/canon", "canon", "")) {
            Statement s = c.createStatement();
            s.execute("CREATE TABLE jd (b int, a serial, v varchar(10) NOT NULL, PRIMARY KEY (b, a))");
            s.execute("CREATE TABLE jc (id int PRIMARY KEY, b int, a int, FOREIGN KEY (b, a) REFERENCES jd ON DELETE CASCADE)");
            s.execute("CREATE INDEX jd_v ON jd (v)");
            c.setAutoCommit(false);
            PreparedStatement p = c.prepareStatement("INSERT INTO jd (b, v) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS);
            for (int i = 0; i < 100; i++) {
                p.setInt(1, i);
                p.setString(2, "v" + i);
                p.addBatch();
            }
            want(p.executeBatch().length, 100);
            c.commit();
            p = c.prepareStatement("SELECT count(*) FROM jd WHERE b < ?");
            for (int i = 0; i < 10; i++) {
                p.setInt(1, 50);
                ResultSet r = p.executeQuery();
                r.next();
                want(r.getInt(1), 50);
            }
            DatabaseMetaData m = c.getMetaData();
            want(column(m.getPrimaryKeys(null, "public", "jd"), "COLUMN_NAME"), List.of("b", "a"));
            want(column(m.getIndexInfo(null, "public", "jd", false, false), "INDEX_NAME"), List.of("jd_pkey", "jd_pkey", "jd_v"));
            want(column(m.getImportedKeys(null, "public", "jc"), "PKCOLUMN_NAME"), List.of("b", "a"));
            want(column(m.getBestRowIdentifier(null, "public", "jd", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME").size(), 2);
            want(column(m.getTables(null, "public", "j%", new String[] {"TABLE"}), "TABLE_NAME"), List.of("jc", "jd"));
            want(m.getSQLKeywords().contains("ilike"), true);
            c.rollback();
            s.execute("DROP TABLE jc, jd");
            c.commit();
        }
    }
}
