//! `canon bench attack`: what a server's other clients feel, and what its memory does, while one role attacks it.
//!
//! ```text
//! server (a child process, empty directory) ◀── watchers: point reads, logins, resident memory every 100 ms
//!                                           ◀── one attack of [`ATTACKS`] after the other, as role `attacker`
//! after each attack: a minute at most for the memory to come back
//! ```
//! An attack is a line of a table: a name and a function that does its worst until [`Stage::over`], and counts how its statements ended.
//! The attacker is an ordinary role; the watchers are other ordinary roles, whose latency is what is judged.
//!
//! Left out on purpose: attacks over a network that is slow, and attackers that hold a superuser's rights.

mod memory;
mod stage;
mod time;
mod watch;

use super::figures::line;
use base::units::size;
use base::{Error, Result, SqlState};
use protocol::client::Client;
use stage::{Attack, Stage};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use watch::{ROWS, Watch, Watchers};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct AttackOptions {
    /// Make only attacks whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds of each attack
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Connections of an attack that takes many
    #[arg(long, default_value_t = 200)]
    clients: usize,
    /// The server's max_memory
    #[arg(long, default_value = "512MB")]
    max_memory: String,
    /// The server's memory.total
    #[arg(long, default_value = "1GB")]
    memory_total: String,
    /// The program to attack; this one when it is left out
    #[arg(long, value_name = "CANON")]
    binary: Option<PathBuf>,
    /// Where the server's directory is made
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Fail when an attack misses a bar
    #[arg(long)]
    check: bool,
}

/// All attacks, in the order in which they are made. A further one is a further line.
pub const ATTACKS: &[&[Attack]] = &[memory::ATTACKS, time::ATTACKS];

/// Resident memory beyond what was allowed for rows and statements: code, stacks, the log's buffers, the allocator's rounding.
const BESIDE: u64 = 256 << 20;
/// What may stay after an attack.
const STAYS: u64 = 64 << 20;
/// Until it has to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(60);
const POINT_READS: Duration = Duration::from_millis(50);
const LOGINS: Duration = Duration::from_secs(1);

fn failed(what: impl std::fmt::Display) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, what.to_string())
}

/// The server under attack; it ends with this.
struct Target {
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Target {
    fn start(o: &AttackOptions) -> Result<Target> {
        let parent = o.directory.clone().unwrap_or_else(std::env::temp_dir);
        let directory = parent.join(format!("canon-attack-{}", std::process::id()));
        let binary = match &o.binary {
            Some(b) => b.clone(),
            None => std::env::current_exe().map_err(failed)?,
        };
        // Free a moment ago; the server says so if it is not any more.
        let free = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = free.local_addr().map_err(failed)?;
        drop(free);
        let child = Command::new(binary)
            .arg("start")
            .arg("--data")
            .arg(&directory)
            .arg("--listen")
            .arg(address.to_string())
            .args(["--max-memory", &o.max_memory])
            .args(["--memory-total", &o.memory_total])
            .args(["--max-connections", "1000"])
            .args(["--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut target = Target {
            child,
            address,
            directory,
        };
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match Client::connect(address) {
                Ok(mut c) => {
                    target.fill(&mut c)?;
                    return Ok(target);
                }
                Err(e) if Instant::now() > until => return Err(failed(e)),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            if let Some(status) = target.child.try_wait().map_err(failed)? {
                return Err(failed(format!("the server ended: {status}")));
            }
        }
    }

    fn fill(&mut self, c: &mut Client) -> Result<()> {
        for sql in [
            "CREATE ROLE attacker LOGIN",
            "CREATE ROLE watcher LOGIN",
            "CREATE TABLE points (id int PRIMARY KEY, v text NOT NULL)",
            "CREATE TABLE attacked (id int, v text)",
            "GRANT SELECT ON points TO watcher, attacker",
            "GRANT ALL ON attacked TO attacker",
            &format!(
                "INSERT INTO points SELECT i, repeat('x', 100) FROM generate_series(1, {ROWS}) i"
            ),
        ] {
            c.query(sql)
                .map_err(failed)?
                .map_err(|r| failed(format!("{sql}: {} {}", r.code, r.message)))?;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Attacks and prints a table.
pub fn run(o: &AttackOptions, out: &mut dyn Write) -> Result<()> {
    let bytes = |s: &str| size(s).ok_or_else(|| failed(format!("{s:?} is no size")));
    let most = bytes(&o.max_memory)? + bytes(&o.memory_total)? + BESIDE;
    let target = Target::start(o)?;
    let pid = target.child.id();
    let watchers = Watchers::start(target.address, pid)?;
    let ms = |d: Duration| format!("{:.1}", d.as_secs_f64() * 1e3);
    let mb = |n: u64| n >> 20;
    line(
        out,
        &format!(
            "max_memory {}, memory.total {}: resident at most {} MB, point reads p99 under {} ms, logins p99 under {} ms, back within {} MB",
            o.max_memory,
            o.memory_total,
            mb(most),
            ms(POINT_READS),
            ms(LOGINS),
            mb(STAYS)
        ),
    )?;
    line(
        out,
        "| attack | resident MB: before, most, after | back after s | point reads: p50, p99, most ms | logins: p99 ms, refused | how statements ended | to stop: p50, p99 ms | misses |",
    )?;
    line(out, "|---|---|---|---|---|---|---|---|")?;
    let mut missed = 0;
    // What it takes when it has done everything once: caches, threads, connections.
    let before = watchers.rest(Duration::from_secs(3));
    for a in ATTACKS.iter().copied().flatten() {
        if !a.name.contains(&o.only) {
            continue;
        }
        let stage = Stage::new(target.address, o.clients, Duration::from_secs(o.seconds));
        watchers.begin();
        let ran = (a.run)(&stage);
        let seen: Watch = watchers.end();
        let (after, back) = watchers.settle(before + STAYS, GIVEN_BACK);
        let (ends, stops) = stage.came();
        let mut misses = Vec::new();
        let mut bar = |met: bool, what: &str| {
            if !met {
                misses.push(what.to_owned());
            }
        };
        bar(ran.is_ok(), "the attack failed");
        bar(seen.most <= most, "memory");
        bar(after <= before + STAYS, "given back");
        bar(seen.reads.quantile(0.99) <= POINT_READS, "point reads");
        bar(seen.logins.quantile(0.99) <= LOGINS, "logins");
        bar(seen.read_errors == 0, "point reads failed");
        missed += misses.len();
        let ends: Vec<_> = ends.iter().map(|(how, n)| format!("{how} × {n}")).collect();
        let stops = match stops.count() {
            0 => "-".to_owned(),
            _ => format!("{}, {}", ms(stops.quantile(0.5)), ms(stops.quantile(0.99))),
        };
        line(
            out,
            &format!(
                "| {} | {}, {}, {} | {:.1} | {}, {}, {} ({} reads) | {}, {} | {} | {stops} | {} |",
                a.name,
                mb(before),
                mb(seen.most),
                mb(after),
                back.as_secs_f64(),
                ms(seen.reads.quantile(0.5)),
                ms(seen.reads.quantile(0.99)),
                ms(seen.reads.quantile(1.0)),
                seen.reads.count(),
                ms(seen.logins.quantile(0.99)),
                seen.login_errors,
                ends.join(", "),
                misses.join(", "),
            ),
        )?;
        if let Err(e) = ran {
            line(out, &format!("({}: {e})", a.name))?;
        }
        let over_time: Vec<String> = seen.over_time.iter().map(|n| mb(*n).to_string()).collect();
        line(
            out,
            &format!("  {}: {}; MB: {}", a.name, a.what, over_time.join(" ")),
        )?;
    }
    if o.check && missed > 0 {
        return Err(failed(format!("{missed} bars were missed")));
    }
    Ok(())
}
