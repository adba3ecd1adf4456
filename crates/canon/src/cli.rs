//! The command line.

use clap::{Parser, Subcommand};
use server::config::{COMMENTED, Config, Overrides};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Canon: a main-memory OLTP database that PostgreSQL clients use unchanged
#[derive(Parser)]
#[command(name = "canon", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a server on a data directory
    Start {
        #[command(flatten)]
        config: Box<Overrides>,
        /// Go on with a log that has lost its end, if it ends here: what is missing stays lost. For one start
        #[arg(long, value_name = "POSITION")]
        accept_log_end: Option<base::Position>,
    },
    /// Ask a running server how it is
    Status {
        /// Address of the server's HTTP port
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "CANON_HTTP",
            default_value = "127.0.0.1:8080"
        )]
        http: String,
    },
    /// Make a replica the primary
    ///
    /// Planned: its primary stops taking writes and hands over what is missing; nothing is lost. Forced: nobody is asked.
    Promote {
        #[command(flatten)]
        options: Promotion,
    },
    /// Vote in a cluster, without data: with a witness two servers have the three votes that a fail-over needs
    Witness {
        #[command(flatten)]
        options: Box<server::control::witness::WitnessOptions>,
    },
    /// Take a member out of its cluster: the server that is asked, or another one, which may be down
    Leave {
        /// The server that is asked: HOST:PORT, or a connection string with a superuser; PGPASSWORD has its password
        #[arg(
            long,
            value_name = "SERVER",
            env = "CANON_LISTEN",
            default_value = "127.0.0.1:5432"
        )]
        server: String,
        /// The member's name; else the server that is asked
        #[arg(long, value_name = "NAME")]
        member: Option<String>,
    },
    /// Change how a cluster is kept together
    Cluster {
        #[command(subcommand)]
        command: OfCluster,
    },
    /// Bring an archive up to the end of a data directory, also while a server works there; list what it holds; remove what is old
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Backup {
        #[command(flatten)]
        options: crate::backup::BackupOptions,
        #[command(subcommand)]
        command: Option<crate::backup::OfArchive>,
    },
    /// Make a data directory from an archive: its end, a position or a time, as a cluster of its own
    Restore {
        #[command(flatten)]
        options: crate::backup::RestoreOptions,
    },
    /// Make a copy of a data directory, also while a server works there
    Copy {
        #[command(flatten)]
        places: crate::copy::CopyOptions,
    },
    /// Read a data directory or an archive whole, and say what is wrong and where
    Verify {
        #[command(flatten)]
        what: crate::verify::VerifyOptions,
    },
    /// Look at commits that a node had to set aside on its way back into the cluster, and put them back
    SetAside {
        #[command(subcommand)]
        command: crate::set_aside::Command,
    },
    /// One endpoint before several nodes: balances, follows promotions, and a client notices no more than one error
    Proxy {
        #[command(flatten)]
        options: Box<crate::endpoint::Endpoint>,
    },
    /// Print a configuration file with every key and its default
    Config,
    /// Start a server with a small shop in it, run a short load, print what it did, and stay up
    Demo {
        #[command(flatten)]
        options: crate::demo::Options,
    },
    /// Measure the embedded engine: YCSB and TPC-C in this process; or what a server's other clients feel of an attack
    #[cfg(feature = "bench")]
    #[command(args_conflicts_with_subcommands = true)]
    Bench {
        #[command(flatten)]
        options: BenchEngine,
        #[command(subcommand)]
        other: Option<OtherBench>,
    },
    /// Measure how far a replica is behind, from published at the primary to visible at the replica
    #[cfg(feature = "bench")]
    BenchLag {
        #[command(flatten)]
        options: bench::lag::LagOptions,
    },
    /// Count stale reads: writers add to registers, readers everywhere must see what was acknowledged before they began
    #[cfg(feature = "bench")]
    BenchReads {
        #[command(flatten)]
        options: bench::reads::ReadsOptions,
    },
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchLagNode {
        #[command(flatten)]
        options: bench::lag::NodeArgs,
    },
}

#[derive(Subcommand)]
enum OfCluster {
    /// Have a cluster that was made with --replica-of run itself, while it works: the primary and its replicas become members
    Adopt {
        /// The primary: HOST:PORT, or a connection string with a superuser; PGPASSWORD has its password
        #[arg(
            long,
            value_name = "PRIMARY",
            env = "CANON_LISTEN",
            default_value = "127.0.0.1:5432"
        )]
        server: String,
    },
    /// Change a setting of the cluster while it works: synchronous_replicas, failover.max_loss, failover.degrade_after, failover.sites_may_lead, maintenance
    Set {
        /// The setting and its value, such as maintenance=on; default takes it back
        #[arg(value_name = "NAME=VALUE", value_parser = name_and_value)]
        setting: (String, String),
        /// Any member: HOST:PORT, or a connection string with a superuser; PGPASSWORD has its password
        #[arg(
            long,
            value_name = "SERVER",
            env = "CANON_LISTEN",
            default_value = "127.0.0.1:5432"
        )]
        server: String,
    },
}

fn name_and_value(said: &str) -> Result<(String, String), String> {
    let (name, value) = said.split_once('=').ok_or("not NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Whom to promote, and how.
#[derive(clap::Args)]
struct Promotion {
    /// The replica: HOST:PORT, or a connection string with a superuser; PGPASSWORD has its password
    #[arg(
        long,
        value_name = "REPLICA",
        env = "CANON_LISTEN",
        default_value = "127.0.0.1:5432"
    )]
    server: String,
    /// Do not ask the old primary; loses what it had and this replica had not
    #[arg(long, requires = "old_primary_is_down")]
    force: bool,
    /// Says so in so many words: two primaries at once would each take writes
    #[arg(long, requires = "force")]
    old_primary_is_down: bool,
    /// The server is a primary that has handed over to a replica which was lost before it took over: it leads again, nothing is lost
    #[arg(long, requires = "successor_is_down", conflicts_with = "force")]
    unseal: bool,
    /// Says so in so many words: the one that it handed over to has not taken over, and will not
    #[arg(long, requires = "unseal")]
    successor_is_down: bool,
    /// The server takes no writes because it has heard of a primary of a newer term, which is lost for good: it leads again, in a term above
    /// that one. What only the lost primary had is lost
    #[arg(long, requires = "newer_primary_is_down", conflicts_with_all = ["force", "unseal"])]
    forget_term: bool,
    /// Says so in so many words: the primary of the newer term is down and will not lead again
    #[arg(long, requires = "forget_term")]
    newer_primary_is_down: bool,
}

/// Runs this statement at a server: the one value of its result.
fn value(server: &str, name: &str, sql: &str) -> base::Result<String> {
    use protocol::{Conninfo, Link};
    let conninfo = Conninfo::parse(server).map_err(|why| {
        let said = server::config::without_password(server);
        let what = format!("--server {said}: {why}");
        base::Error::new(base::SqlState::INVALID_PARAMETER_VALUE, what)
    })?;
    let report = service::runtime()?.block_on(async {
        let parameters = [("application_name", name), ("canon.maintenance", "on")];
        let mut link = Link::connect(&conninfo, &parameters).await?;
        link.query(sql).await
    })?;
    let words = report.into_iter().next().and_then(|r| r.into_iter().next());
    Ok(words.flatten().unwrap_or_default())
}

/// The same, printed.
fn ask(server: &str, name: &str, sql: &str) -> base::Result<()> {
    println!("{}", value(server, name, sql)?);
    Ok(())
}

/// The time in which a server must say whether it is the primary, after its answer to a promotion was lost.
const SETTLED: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);

/// Whether this server leads, by its own word.
fn leads(server: &str) -> base::Result<bool> {
    let follows = value(server, "canon promote", "SELECT pg_is_in_recovery()")?;
    Ok(follows == "f")
}

/// Has a replica promoted as planned. The hand-over may be done though its answer is an error, or none: the new primary may have no lease yet when it is to answer.
/// So the server is asked before an error is reported.
fn hand_over(server: &str, sql: &str) -> base::Result<String> {
    let led = leads(server)?;
    let e = match value(server, "canon promote", sql) {
        Err(e) if !led => e,
        done => return done,
    };
    // A refusal is the last word of a server that follows.
    let refused = e.code() == base::SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    let until = Instant::now() + if refused { Duration::ZERO } else { SETTLED };
    loop {
        match leads(server) {
            Ok(true) => {
                return Ok(
                    "Promoted: this server is the primary. The answer to the hand-over was lost."
                        .into(),
                );
            }
            // It is gone, and says nothing of a hand-over.
            Err(gone) if gone.code() == base::SqlState::CONNECTION_FAILURE => return Err(e),
            _ if Instant::now() >= until => return Err(e),
            _ => std::thread::sleep(AGAIN),
        }
    }
}

fn promote(o: &Promotion) -> base::Result<()> {
    let sql = match o.unseal {
        true => "SELECT canon_unseal()".to_owned(),
        false if o.forget_term => "SELECT canon_unseal(true)".to_owned(),
        false => format!("SELECT canon_promote({})", o.force),
    };
    match o.unseal || o.forget_term || o.force {
        true => ask(&o.server, "canon promote", &sql),
        false => hand_over(&o.server, &sql).map(|report| println!("{report}")),
    }
}

fn leave(server: &str, member: Option<&str>) -> base::Result<()> {
    let sql = match member {
        None => "SELECT canon_leave()".to_owned(),
        Some(name) => format!("SELECT canon_leave({})", quoted(name)),
    };
    ask(server, "canon leave", &sql)
}

/// A constant of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn change_cluster(command: &OfCluster) -> base::Result<()> {
    match command {
        OfCluster::Adopt { server } => ask(server, "canon cluster adopt", "SELECT canon_adopt()"),
        OfCluster::Set {
            setting: (name, value),
            server,
        } => {
            let sql = format!(
                "SELECT canon_cluster_set({}, {})",
                quoted(name),
                quoted(value)
            );
            ask(server, "canon cluster set", &sql)
        }
    }
}

/// What `canon bench` measures beside the engine.
#[cfg(feature = "bench")]
#[derive(Subcommand)]
enum OtherBench {
    /// Attack a server: its memory, its logins and the other clients' point reads meanwhile
    Attack {
        #[command(flatten)]
        options: bench::attack::AttackOptions,
    },
}

/// What `canon bench` measures of the engine.
#[cfg(feature = "bench")]
#[derive(clap::Args)]
struct BenchEngine {
    /// Where temporary data directories are made; tmpfs takes the disk out of the figures
    #[arg(long, value_name = "DIR")]
    directory: Option<std::path::PathBuf>,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Rows of YCSB
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Make only runs whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Split values beside plain ones, and nothing else
    #[arg(long)]
    split: bool,
}

#[cfg(feature = "bench")]
fn bench(b: BenchEngine) -> base::Result<()> {
    let options = bench::BenchOptions {
        directory: b.directory.unwrap_or_else(std::env::temp_dir),
        duration: std::time::Duration::from_secs(b.seconds.max(1)),
        threads: b.threads,
        rows: b.rows,
        only: b.only,
        tabs: false,
        split: b.split,
    };
    bench::run(&options, &mut std::io::stdout())
}

/// Runs the program. 0: fine, 1: it failed, 2: it was asked the wrong way.
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    if let Err(e) = server::config::refuse_passwords(arguments.skip(1)) {
        return failed(&e);
    }
    let command = Cli::parse().command;
    let starts = matches!(command, Command::Start { .. });
    let done = match command {
        Command::Start {
            config,
            accept_log_end,
        } => {
            let variables =
                std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            server::config::check_variables(variables)
                .and_then(|foreign| Ok((foreign, Config::load(&config)?)))
                .and_then(|(foreign, config)| {
                    server::run(Config {
                        foreign,
                        accept_log_end,
                        ..config
                    })
                })
        }
        Command::Status { http } => return crate::status::run(&http),
        Command::Promote { options } => promote(&options),
        Command::Leave { server, member } => leave(&server, member.as_deref()),
        Command::Cluster { command } => change_cluster(&command),
        Command::Witness { options } => server::control::witness::run(&options),
        Command::SetAside { command } => return judged(crate::set_aside::run(&command)),
        Command::Verify { what } => return judged(crate::verify::run(&what)),
        Command::Backup { options, command } => {
            return judged(match command {
                Some(command) => crate::backup::of_archive(&command),
                None => crate::backup::back_up(&options),
            });
        }
        Command::Restore { options } => return judged(crate::backup::restore(&options)),
        Command::Copy { places } => return judged(crate::copy::run(&places)),
        Command::Proxy { options } => crate::endpoint::run(*options),
        Command::Config => {
            print!("{COMMENTED}");
            Ok(())
        }
        Command::Demo { options } => crate::demo::run(&options),
        #[cfg(feature = "bench")]
        Command::Bench {
            other: Some(OtherBench::Attack { options }),
            ..
        } => bench::attack::run(&options, &mut std::io::stdout()),
        #[cfg(feature = "bench")]
        Command::Bench { options, .. } => bench(options),
        #[cfg(feature = "bench")]
        Command::BenchLag { options } => bench::lag::run(&options, &mut std::io::stdout()),
        #[cfg(feature = "bench")]
        Command::BenchReads { options } => bench::reads::run(&options, &mut std::io::stdout()),
        #[cfg(feature = "bench")]
        Command::BenchLagNode { options } => bench::lag::run_node(&options),
    };
    // A server says it in the form of its log, once it has one.
    if let Err(e) = &done
        && starts
        && server::is_logging()
    {
        server::log_failure(e);
        return ExitCode::FAILURE;
    }
    judged(done.map(|()| true))
}

/// The end of a command that has said what it found: whether that is fine, or why it could not be done.
fn judged(done: base::Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => failed(&e),
    }
}

/// Says why on standard error.
fn failed(e: &base::Error) -> ExitCode {
    use std::io::Write as _;
    let mut out = std::io::stderr();
    _ = writeln!(out, "canon: {}", e.fields().message);
    for extra in [&e.fields().detail, &e.fields().hint] {
        if !extra.is_empty() {
            _ = writeln!(out, "  {extra}");
        }
    }
    ExitCode::FAILURE
}
