// Flyway: migrations under its advisory lock, info, validation.
import java.nio.file.*;

public class Flyway {
    public static void main(String[] args) throws Exception {
        Path at = Files.createTempDirectory("flyway");
        Files.writeString(at.resolve("V1__one.sql"), "CREATE TABLE fly (id int PRIMARY KEY);");
        Files.writeString(at.resolve("V2__two.sql"), "ALTER TABLE fly ADD COLUMN v text; INSERT INTO fly VALUES (1, 'x');");
        var flyway = org.flywaydb.core.Flyway.configure()
            .dataSource("jdbc:postgresql://127.0.0.1:" + args[0] + "/canon", "canon", "")
            .locations("filesystem:" + at).baselineOnMigrate(true).baselineVersion("0").load();
        if (flyway.migrate().migrationsExecuted != 2) throw new AssertionError("two migrations");
        if (flyway.migrate().migrationsExecuted != 0) throw new AssertionError("none is left");
        flyway.validate();
        if (flyway.info().applied().length < 2) throw new AssertionError("they are known");
    }
}
