// Liquibase: an update, a snapshot of what it made, and its rollback.
import java.nio.file.*;
import java.sql.DriverManager;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.resource.DirectoryResourceAccessor;

public class Liquibase {
    public static void main(String[] args) throws Exception {
        Path at = Files.createTempDirectory("liquibase");
        Files.writeString(at.resolve("log.sql"), "--liquibase formatted sql\n\n--changeset a:1\nCREATE TABLE liq (id int PRIMARY KEY, v text);\n"
            + "--rollback DROP TABLE liq;\n\n--changeset a:2\nCREATE INDEX liq_v ON liq (v);\n--rollback DROP INDEX liq_v;\n");
        var c = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + args[0] + "/canon", "canon", "");
        var database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(c));
        try (var all = new liquibase.Liquibase("log.sql", new DirectoryResourceAccessor(at), database)) {
            all.update("");
            if (!all.listUnrunChangeSets(null, null).isEmpty()) throw new AssertionError("nothing is left");
            var made = liquibase.snapshot.SnapshotGeneratorFactory.getInstance().createSnapshot(
                database.getDefaultSchema(), database, new liquibase.snapshot.SnapshotControl(database));
            var table = made.get(new liquibase.structure.core.Table(null, null, "liq"));
            if (table.getColumns().size() != 2 || table.getIndexes().size() != 2) throw new AssertionError("columns and indexes of the table");
            if (!table.getPrimaryKey().getColumnNames().equals("id")) throw new AssertionError("its primary key");
            all.rollback(2, "");
        }
    }
}
