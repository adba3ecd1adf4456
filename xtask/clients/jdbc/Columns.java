// pgjdbc: the columns of a table by DatabaseMetaData, which snapshots of Liquibase and validation of Hibernate ask for.
import java.sql.*;

public class Columns {
    public static void main(String[] args) throws Exception {
        try (Connection c = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + args[0] + "/canon", "canon", "")) {
            c.createStatement().execute("CREATE TABLE jcol (id serial PRIMARY KEY, v varchar(10) NOT NULL)");
            ResultSet r = c.getMetaData().getColumns(null, "public", "jcol", null);
            r.next();
            r.next();
            if (r.getInt("COLUMN_SIZE") != 10) throw new AssertionError("the length of v");
        }
    }
}
