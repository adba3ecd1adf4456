//! Real programs against a canon server: each a small script beside this crate (`xtask/clients`), with its client from a package
//! registry, at a pinned version.
//!
//! ```text
//! cargo xtask clients matrix            all of them
//! cargo xtask clients matrix --quick    those that start from PyPI alone; `cargo xtask ci` runs these
//! cargo xtask clients matrix NAME…      some
//!     --binary CANON                    a server that is built already
//!     --postgres                        PostgreSQL 15 in canon's place, which shows that the scripts ask for nothing else
//! ```
//! Every program gets a server of its own, on an empty directory. A script ends well or not; what it says is shown where it does not.
//! A program that is known to fail stands in the table with its reason, and has to fail: one that passes is to be taken off the list, so
//! the list only shrinks. A program that compares gets a PostgreSQL 15 as well.
//!
//! Left out on purpose: the drivers' own suites (`suites`), and BenchBase and sysbench-tpcc, which no
//! registry has (`bench applications`).

use crate::guard::Guard;
use crate::{Result, clients, command, installed, metadata, process, server};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A script that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Where a client comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registry {
    /// PyPI, with these packages.
    Python(&'static [&'static str]),
    /// npm.
    Node(&'static [&'static str]),
    /// The Go module proxy.
    Go(&'static [&'static str]),
    /// Maven Central: what `jdbc/pom.xml` names.
    Java,
    /// Rust crates: what `rust/Cargo.toml` names, whose binary this is.
    Rust(&'static str),
    /// Debian: a file, and the package that has it. The script is Python.
    Debian(&'static str, &'static str),
}

struct Program {
    name: &'static str,
    registry: Registry,
    /// Below `xtask/clients`.
    script: &'static str,
    /// The script's second argument is the port of a PostgreSQL 15.
    beside: bool,
    /// Why it fails, where it is known to.
    fails: Option<&'static str>,
}

const fn program(name: &'static str, registry: Registry, script: &'static str) -> Program {
    Program {
        name,
        registry,
        script,
        beside: false,
        fails: None,
    }
}

const fn failing(p: Program, why: &'static str) -> Program {
    Program {
        fails: Some(why),
        ..p
    }
}

const fn beside(p: Program) -> Program {
    Program { beside: true, ..p }
}

use Registry::{Debian, Go, Java, Node, Python, Rust};

const PSYCOPG2: &str = "psycopg2-binary==2.9.10";
const PSYCOPG3: &str = "psycopg[binary]==3.2.3";
const SQLALCHEMY: &str = "SQLAlchemy==2.0.36";

const PROGRAMS: &[Program] = &[
    program("psycopg 3", Python(&[PSYCOPG3]), "python/psycopg3.py"),
    program("psycopg2", Python(&[PSYCOPG2]), "python/psycopg2.py"),
    program("asyncpg", Python(&["asyncpg==0.30.0"]), "python/asyncpg.py"),
    program(
        "SQLAlchemy",
        Python(&[SQLALCHEMY, PSYCOPG2]),
        "python/sqlalchemy.py",
    ),
    program(
        "Alembic",
        Python(&["alembic==1.14.0", SQLALCHEMY, PSYCOPG2]),
        "python/alembic.py",
    ),
    program(
        "Django",
        Python(&["Django==5.2", PSYCOPG3]),
        "python/django.py",
    ),
    program(
        "pgcli",
        Python(&["pgcli==4.1.0", PSYCOPG3]),
        "python/pgcli.py",
    ),
    program("pgjdbc", Java, "jdbc/Jdbc.java"),
    program("pgjdbc getColumns", Java, "jdbc/Columns.java"),
    program("HikariCP", Java, "jdbc/Hikari.java"),
    program("Flyway", Java, "jdbc/Flyway.java"),
    program("Liquibase", Java, "jdbc/Liquibase.java"),
    program("Hibernate", Java, "jdbc/Hibernate.java"),
    program("jOOQ", Java, "jdbc/Jooq.java"),
    program("pgx", Go(&["github.com/jackc/pgx/v5@v5.7.1"]), "go/pgx.go"),
    program(
        "GORM",
        Go(&["gorm.io/gorm@v1.25.12", "gorm.io/driver/postgres@v1.5.9"]),
        "go/gorm.go",
    ),
    program(
        "golang-migrate",
        Go(&["github.com/golang-migrate/migrate/v4@v4.18.1"]),
        "go/migrate.go",
    ),
    program("node-postgres", Node(&["pg@8.13.1"]), "node/pg.js"),
    program(
        "postgres.js",
        Node(&["postgres@3.4.5"]),
        "node/postgresjs.js",
    ),
    program("Knex", Node(&["knex@3.1.0", "pg@8.13.1"]), "node/knex.js"),
    failing(
        program(
            "Knex JSON paths",
            Node(&["knex@3.1.0", "pg@8.13.1"]),
            "node/knex_paths.js",
        ),
        "there is no jsonpath",
    ),
    program(
        "Sequelize",
        Node(&["sequelize@6.37.5", "pg@8.13.1"]),
        "node/sequelize.js",
    ),
    failing(
        program(
            "Sequelize ENUM",
            Node(&["sequelize@6.37.5", "pg@8.13.1"]),
            "node/sequelize_do.js",
        ),
        "there is no DO, by which it makes the type",
    ),
    program(
        "TypeORM",
        Node(&["typeorm@0.3.20", "pg@8.13.1"]),
        "node/typeorm.js",
    ),
    program(
        "Kysely",
        Node(&["kysely@0.27.4", "pg@8.13.1", "pg-cursor@2.12.1"]),
        "node/kysely.js",
    ),
    program(
        "Drizzle",
        Node(&["drizzle-orm@0.36.4", "pg@8.13.1"]),
        "node/drizzle.js",
    ),
    program(
        "tokio-postgres",
        Rust("with_tokio_postgres"),
        "rust/tokio_postgres.rs",
    ),
    program("sqlx", Rust("with_sqlx"), "rust/sqlx.rs"),
    program("Diesel", Rust("with_diesel"), "rust/diesel.rs"),
    program("sea-orm", Rust("with_sea_orm"), "rust/sea_orm.rs"),
    program(
        "PgBouncer",
        Debian("/usr/sbin/pgbouncer", "pgbouncer"),
        "debian/pgbouncer.py",
    ),
    beside(program(
        "pg_dump",
        Debian("/usr/bin/pg_dump", "postgresql-client-15"),
        "debian/pg_dump.py",
    )),
    beside(program(
        "postgres_fdw",
        Debian(
            "/usr/share/postgresql/15/extension/postgres_fdw.control",
            "postgresql-15",
        ),
        "debian/fdw.py",
    )),
    beside(program(
        "postgres_exporter",
        Debian(
            "/usr/bin/prometheus-postgres-exporter",
            "prometheus-postgres-exporter",
        ),
        "debian/exporter.py",
    )),
];

const USAGE: &str = "cargo xtask clients matrix [--binary CANON | --postgres] [--quick | NAME…]";

enum Tried {
    Canon(PathBuf),
    /// As the tests are built.
    Built,
    Postgres,
}

pub fn main(args: &[String]) -> Result<()> {
    let (server, args) = match args {
        [option, binary, rest @ ..] if option == "--binary" => {
            let binary = std::path::absolute(binary).map_err(|e| e.to_string())?;
            (Tried::Canon(binary), rest)
        }
        [option, rest @ ..] if option == "--postgres" => (Tried::Postgres, rest),
        _ => (Tried::Built, args),
    };
    match args {
        [] => run(server, &|_| true),
        [quick] if quick == "--quick" => run(server, &quick_part),
        names => {
            let unknown = |n: &&String| !PROGRAMS.iter().any(|p| p.name == **n);
            if let Some(other) = names.iter().find(unknown) {
                let all: Vec<&str> = PROGRAMS.iter().map(|p| p.name).collect();
                return Err(format!(
                    "no program `{other}`; there are {}\n{USAGE}",
                    all.join(", ")
                ));
            }
            run(server, &|p| names.iter().any(|n| n == p.name))
        }
    }
}

/// What CI runs.
pub fn quick() -> Result<()> {
    run(Tried::Built, &quick_part)
}

fn quick_part(p: &Program) -> bool {
    matches!(p.registry, Python(_))
}

fn run(tried: Tried, wanted: &dyn Fn(&Program) -> bool) -> Result<()> {
    // Before the build, which may replace this program's file.
    let mut guard = Guard::new()?;
    let canon = match tried {
        Tried::Canon(binary) => Some(binary),
        Tried::Built => Some(built()?),
        Tried::Postgres => None,
    };
    let parent = server::new_directory(&std::env::temp_dir(), &mut guard)?;
    let (mut ran, mut wrong) = (0, Vec::new());
    for (i, p) in PROGRAMS.iter().filter(|p| wanted(p)).enumerate() {
        let begun = Instant::now();
        let home = parent.join(i.to_string());
        let outcome = ready(p).and_then(|c| alone(p, c, canon.as_deref(), &home, &mut guard));
        let seconds = begun.elapsed().as_secs_f64();
        let fails = p.fails.filter(|_| canon.is_some());
        let verdict = match (&outcome, fails) {
            (Ok(()), None) => "works".to_owned(),
            (Err(_), Some(why)) => format!("fails, as is known: {why}"),
            (Ok(()), Some(_)) => {
                wrong.push(format!("{} works: take it off the list", p.name));
                "works, and is listed as failing".to_owned()
            }
            (Err(e), None) => {
                wrong.push(format!("{}:\n{e}", p.name));
                "FAILS".to_owned()
            }
        };
        ran += 1;
        println!("  {:<18} {verdict} ({seconds:.1} s)", p.name);
    }
    println!("  {ran} programs, {} not as listed", wrong.len());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

fn built() -> Result<PathBuf> {
    crate::ci::built("canon", &crate::ci::features(&metadata::read()?))
}

/// Servers for this program, and its run.
fn alone(
    p: &Program,
    mut script: Command,
    canon: Option<&Path>,
    home: &Path,
    guard: &mut Guard,
) -> Result<()> {
    let programs = clients::postgres_bin()?;
    script.env("CANON_PG_BIN", &programs);
    let mut postgres = |name: &str| -> Result<server::Server> {
        let home = home.join(name);
        std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
        server::postgres(&programs, &home, guard, true)
    };
    let mut servers = Vec::new();
    if p.beside {
        servers.push(postgres("beside")?);
    }
    servers.push(match canon {
        None => postgres("tried")?,
        Some(canon) => {
            std::fs::create_dir_all(home).map_err(|e| e.to_string())?;
            server::canon(canon, home, guard)?
        }
    });
    // The one that is tried first.
    script.args(servers.iter().rev().map(|s| s.port.to_string()));
    to_its_end(script, home)
}

fn scripts() -> PathBuf {
    command::root().join("xtask").join("clients")
}

/// Installs the client if it is not there; the command that runs the script, but for the ports.
fn ready(p: &Program) -> Result<Command> {
    let script = scripts().join(p.script);
    match p.registry {
        Python(packages) => {
            let at = installed::python(&p.name.replace(' ', "-"), packages)?;
            // Isolated: the scripts are named like the packages.
            let mut python = Command::new(at.join("bin").join("python"));
            python.arg("-I").arg(script);
            Ok(python)
        }
        Node(packages) => {
            let name = format!("node-{}", p.name);
            let at = installed::once(&name, &packages.join(" "), |at| {
                let mut npm = Command::new("npm");
                npm.args(["install", "--silent", "--no-audit", "--no-fund"]);
                command::output(npm.arg("--prefix").arg(at).args(packages)).map(drop)
            })?;
            let mut node = Command::new("node");
            node.env("NODE_PATH", at.join("node_modules")).arg(script);
            Ok(node)
        }
        Go(modules) => {
            let at = installed::go(p.name, modules, &script)?;
            Ok(Command::new(at.join("client")))
        }
        Java => {
            let pom = scripts().join("jdbc").join("pom.xml");
            let text = std::fs::read_to_string(&pom).map_err(|e| e.to_string())?;
            let at = installed::once("java", &text, |at| {
                let mut mvn = Command::new("mvn");
                mvn.args(["-q", "-B", "dependency:copy-dependencies", "-f"])
                    .arg(&pom);
                mvn.arg(format!("-DoutputDirectory={}", at.join("lib").display()));
                command::output(&mut mvn).map(drop)
            })?;
            let mut java = Command::new("java");
            java.arg("-cp").arg(at.join("lib").join("*")).arg(script);
            Ok(java)
        }
        Rust(binary) => {
            // Diesel's.
            clients::packages(&[("/usr/include/postgresql/libpq-fe.h", "libpq-dev")])?;
            // Cargo knows itself what is to be built again.
            let at = command::target_dir().join("clients").join("rust");
            copy(&scripts().join("rust"), &at)?;
            let build = ["build", "--quiet", "--locked", "--bin", binary];
            let mut cargo = command::cargo(&build);
            cargo.current_dir(&at);
            cargo.env("CARGO_TARGET_DIR", at.join("target"));
            command::output(&mut cargo)?;
            Ok(Command::new(at.join("target").join("debug").join(binary)))
        }
        Debian(file, package) => {
            clients::packages(&[(file, package)])?;
            let mut python = Command::new("python3");
            python.arg("-I").arg(script);
            Ok(python)
        }
    }
}

/// The files of a directory, where they are not the same already.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let fail = |e: std::io::Error| format!("{}: {e}", from.display());
    std::fs::create_dir_all(to).map_err(fail)?;
    for entry in std::fs::read_dir(from).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let text = std::fs::read(entry.path()).map_err(fail)?;
        let there = to.join(entry.file_name());
        if !std::fs::read(&there).is_ok_and(|old| old == text) {
            std::fs::write(there, text).map_err(fail)?;
        }
    }
    Ok(())
}

/// Runs the script to its end.
pub fn to_its_end(mut command: Command, home: &Path) -> Result<()> {
    let said = home.join("said");
    let out = std::fs::File::create(&said).map_err(|e| e.to_string())?;
    let fail = |e: std::io::Error| format!("{}: {e}", said.display());
    let err = out.try_clone().map_err(fail)?;
    command.current_dir(home);
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let shown = command::show(&command);
    let mut child = command.spawn().map_err(|e| format!("{shown}: {e}"))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            break status;
        }
        if begun.elapsed() > LIMIT {
            process::kill_tree(child.id());
            _ = child.wait();
            return Err(format!("{shown}: not done after {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if status.success() {
        return Ok(());
    }
    let text = std::fs::read_to_string(&said).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(format!("{shown}: {status}\n{last}"))
}
