//! Real programs against a canon server: each a small script beside this crate (`xtask/clients`), with its client from a package
//! registry, at a pinned version.
//!
//! ```text
//! cargo xtask clients matrix            all of them
//! cargo xtask clients matrix --quick    those that start from PyPI alone; `cargo xtask ci` runs these
//! cargo xtask clients matrix NAME…      some
//! ```
//! Every program gets a server of its own, on an empty directory. A script ends well or not; what it says is shown where it does not.
//! A program that is known to fail stands in the table with its reason, and has to fail: one that passes is to be taken off the list, so
//! the list only shrinks.
//!
//! Left out on purpose: the drivers' own suites, which are not in their packages.

use crate::guard::Guard;
use crate::{Result, command, metadata, process, server};
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
    Go(&'static str),
    /// Maven Central: what `jdbc/pom.xml` names.
    Java,
}

struct Program {
    name: &'static str,
    registry: Registry,
    /// Below `xtask/clients`.
    script: &'static str,
    /// Why it fails, where it is known to.
    fails: Option<&'static str>,
}

const fn program(name: &'static str, registry: Registry, script: &'static str) -> Program {
    Program {
        name,
        registry,
        script,
        fails: None,
    }
}

const fn failing(p: Program, why: &'static str) -> Program {
    Program {
        fails: Some(why),
        ..p
    }
}

use Registry::{Go, Java, Node, Python};

const PROGRAMS: &[Program] = &[
    program("asyncpg", Python(&["asyncpg==0.30.0"]), "asyncpg.py"),
    program("psycopg2", Python(&[PSYCOPG2]), "psycopg2.py"),
    program(
        "SQLAlchemy",
        Python(&["SQLAlchemy==2.0.36", PSYCOPG2]),
        "sqlalchemy.py",
    ),
    program(
        "Django",
        Python(&["Django==5.2", "psycopg[binary]==3.2.3"]),
        "django.py",
    ),
    program("node-postgres", Node(&["pg@8.13.1"]), "pg.js"),
    program("pgx", Go("github.com/jackc/pgx/v5@v5.7.1"), "pgx/main.go"),
    program("pgjdbc", Java, "jdbc/Jdbc.java"),
    failing(
        program("pgjdbc getColumns", Java, "jdbc/Columns.java"),
        "there are no window functions",
    ),
    program("Flyway", Java, "jdbc/Flyway.java"),
    program("Liquibase", Java, "jdbc/Liquibase.java"),
];
const PSYCOPG2: &str = "psycopg2-binary==2.9.10";

pub fn main(args: &[String]) -> Result<()> {
    match args {
        [] => run(&|_| true),
        [quick] if quick == "--quick" => quick_part(),
        names => {
            let known = |n: &&String| !PROGRAMS.iter().any(|p| p.name == **n);
            if let Some(other) = names.iter().find(known) {
                let all: Vec<&str> = PROGRAMS.iter().map(|p| p.name).collect();
                return Err(format!(
                    "no program `{other}`; there are {}",
                    all.join(", ")
                ));
            }
            run(&|p| names.iter().any(|n| n == p.name))
        }
    }
}

/// What CI runs.
pub fn quick_part() -> Result<()> {
    run(&|p| matches!(p.registry, Python(_)))
}

fn run(wanted: &dyn Fn(&Program) -> bool) -> Result<()> {
    // Before the build, which may replace this program's file.
    let mut guard = Guard::new()?;
    let packages = metadata::read()?;
    let mut build = command::cargo(&["build", "--quiet", "--workspace", "--bins"]);
    build.args(crate::ci::features(&packages));
    command::output(&mut build)?;
    let canon = command::target_dir().join("debug").join("canon");
    let parent = server::new_directory(&std::env::temp_dir(), &mut guard)?;
    let mut wrong = Vec::new();
    for (i, p) in PROGRAMS.iter().filter(|p| wanted(p)).enumerate() {
        let begun = Instant::now();
        let ran = ready(p).and_then(|command| {
            let home = parent.join(i.to_string());
            std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
            let server = server::canon(&canon, &home, &mut guard)?;
            script(command, server.port, &home)
        });
        let seconds = begun.elapsed().as_secs_f64();
        let verdict = match (&ran, p.fails) {
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
        println!("  {:<18} {verdict} ({seconds:.1} s)", p.name);
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

fn clients() -> PathBuf {
    command::target_dir().join("clients")
}

fn scripts() -> PathBuf {
    command::root().join("xtask").join("clients")
}

/// Runs `install` in this directory of clients, unless it was run there with the same words before.
fn once(name: &str, words: &str, install: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let at = clients().join(name);
    let stamp = at.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|s| s == words) {
        return Ok(at);
    }
    let fail = |e: std::io::Error| format!("{}: {e}", at.display());
    if at.exists() {
        std::fs::remove_dir_all(&at).map_err(fail)?;
    }
    std::fs::create_dir_all(&at).map_err(fail)?;
    install(&at)?;
    std::fs::write(&stamp, words).map_err(fail)?;
    Ok(at)
}

/// Installs the client if it is not there; the command that runs the script, but for the port.
fn ready(p: &Program) -> Result<Command> {
    let script = scripts().join(p.script);
    match p.registry {
        Python(packages) => {
            let name = format!("python-{}", p.name);
            let at = once(&name, &packages.join(" "), |at| {
                command::output(Command::new("python3").args(["-m", "venv"]).arg(at))?;
                let mut pip = Command::new(at.join("bin").join("pip"));
                pip.args(["install", "--quiet", "--disable-pip-version-check"]);
                command::output(pip.args(packages)).map(drop)
            })?;
            // Isolated: the scripts are named like the packages.
            let mut python = Command::new(at.join("bin").join("python"));
            python.arg("-I").arg(script);
            Ok(python)
        }
        Node(packages) => {
            let at = once("node", &packages.join(" "), |at| {
                let mut npm = Command::new("npm");
                npm.args(["install", "--silent", "--no-audit", "--no-fund"]);
                command::output(npm.arg("--prefix").arg(at).args(packages)).map(drop)
            })?;
            let mut node = Command::new("node");
            node.env("NODE_PATH", at.join("node_modules")).arg(script);
            Ok(node)
        }
        Go(module) => {
            let text = std::fs::read_to_string(&script).map_err(|e| e.to_string())?;
            let at = once("go", &format!("{module}\n{text}"), |at| {
                let go = |args: &[&str]| {
                    let mut go = Command::new("go");
                    command::output(go.args(args).current_dir(at)).map(drop)
                };
                std::fs::write(at.join("main.go"), &text).map_err(|e| e.to_string())?;
                go(&["mod", "init", "canon/client"])?;
                go(&["get", module])?;
                go(&["build", "-o", "client", "."])
            })?;
            Ok(Command::new(at.join("client")))
        }
        Java => {
            let pom = scripts().join("jdbc").join("pom.xml");
            let text = std::fs::read_to_string(&pom).map_err(|e| e.to_string())?;
            let at = once("java", &text, |at| {
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
    }
}

/// Runs the script to its end.
fn script(mut command: Command, port: u16, home: &Path) -> Result<()> {
    let said = home.join("said");
    let out = std::fs::File::create(&said).map_err(|e| e.to_string())?;
    let fail = |e: std::io::Error| format!("{}: {e}", said.display());
    let err = out.try_clone().map_err(fail)?;
    command.arg(port.to_string()).current_dir(home);
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
