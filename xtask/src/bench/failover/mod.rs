//! How long a cluster that runs itself is without commits when its primary is lost.
//!
//! ```text
//! cargo xtask bench failover [--rounds 10] [--how kill,stop,cut] [--writers 4] [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]
//! ```
//! Three servers on this machine, and writers that go to any of them, one row per commit. In each round the primary is killed (`kill -9`), stopped (`SIGSTOP`),
//! or cut off from the other servers, while clients reach it still (`cables`). Then it comes back, and the next round begins when all three count for a fail-over.
//!
//! | figure | what it is |
//! |---|---|
//! | without commits | the longest time between two acknowledgements that follow each other, from the moment of the loss until five seconds after it |
//! | lost | numbers that were acknowledged and are in no row at the end |
//! | two primaries | rounds after which more than one server said that it leads |
//!
//! The leader of the consensus stands at the primary in some rounds; they are counted apart, as an election comes first there.
//!
//! Left out on purpose: PostgreSQL with Patroni, which cannot be had here.

mod cables;

use super::options::{number, program};
use super::page;
use crate::guard::Guard;
use crate::server::{self, Server, USER};
use crate::wire::Connection;
use crate::{Result, command};
use cables::Cables;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const USAGE: &str = "cargo xtask bench failover [--rounds 10] [--how kill,stop,cut] [--writers 4] [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]";

/// A cluster that is not whole again by then will not be.
const PATIENCE: Duration = Duration::from_secs(120);
/// A server that says nothing for so long is left by its client.
const SILENCE: Duration = Duration::from_millis(700);
/// Of commits before and after a loss.
const CALM: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Kill,
    Stop,
    Cut,
}

impl How {
    fn parse(text: &str) -> Result<How> {
        match text {
            "kill" => Ok(How::Kill),
            "stop" => Ok(How::Stop),
            "cut" => Ok(How::Cut),
            _ => Err(format!("`{text}`: kill, stop or cut")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            How::Kill => "kill -9",
            How::Stop => "SIGSTOP",
            How::Cut => "cut off",
        }
    }
}

struct Options {
    rounds: usize,
    how: Vec<How>,
    writers: usize,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        rounds: 10,
        how: vec![How::Kill, How::Stop, How::Cut],
        writers: 4,
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--rounds" => options.rounds = number(value()?)?,
            "--how" => options.how = value()?.split(',').map(How::parse).collect::<Result<_>>()?,
            "--writers" => options.writers = number(value()?)?,
            "--binary" => options.binary = Some(value()?.into()),
            "--tmpfs" => options.directory = "/dev/shm".into(),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// One member.
struct Node {
    server: Server,
    http: u16,
}

impl Node {
    /// Its metrics; empty: no answer.
    fn metrics(&self) -> String {
        let ask = || -> std::io::Result<String> {
            let mut s = std::net::TcpStream::connect(("127.0.0.1", self.http))?;
            s.set_read_timeout(Some(SILENCE))?;
            write!(s, "GET /metrics HTTP/1.1\r\n\r\n")?;
            let mut text = String::new();
            s.read_to_string(&mut text)?;
            Ok(text)
        };
        ask().unwrap_or_default()
    }

    fn leads(&self) -> bool {
        self.metrics().contains("canon_role{role=\"primary\"} 1")
    }

    fn is_whole(&self) -> bool {
        let m = self.metrics();
        let follows =
            m.contains("canon_role{role=\"primary\"} 1") || m.contains("canon_primary_connected 1");
        follows && m.contains("canon_failover{obstacle=\"\"} 1")
    }
}

fn signal(pid: u32, name: &str) -> Result<()> {
    command::output(Command::new("kill").args([name, &pid.to_string()])).map(drop)
}

/// When each number was acknowledged.
type Kept = Arc<Mutex<Vec<(Instant, u64)>>>;

/// Clients that write all the time.
struct Writers {
    stop: Arc<AtomicBool>,
    kept: Kept,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Writers {
    fn start(count: usize, ports: &[u16]) -> Writers {
        let (stop, kept) = (Arc::new(AtomicBool::new(false)), Kept::default());
        let next = Arc::new(AtomicU64::new(1));
        let threads = (0..count).map(|i| {
            let (stop, kept, next, ports) =
                (stop.clone(), kept.clone(), next.clone(), ports.to_vec());
            std::thread::spawn(move || {
                let mut at = i;
                while !stop.load(Ordering::SeqCst) {
                    at += 1;
                    let port = ports[at % ports.len()];
                    let Ok(mut c) = Connection::open_within(port, USER, Some(SILENCE)) else {
                        std::thread::sleep(Duration::from_millis(10));
                        continue;
                    };
                    while !stop.load(Ordering::SeqCst) {
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        if c.query(&format!("INSERT INTO kept VALUES ({n})")).is_err() {
                            break;
                        }
                        kept.lock().expect("whole").push((Instant::now(), n));
                        // Latency is asked for here, not throughput.
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            })
        });
        Writers {
            threads: threads.collect(),
            stop,
            kept,
        }
    }

    /// The longest time without an acknowledgement from `begun` on, once commits have gone on for a while.
    fn without(&self, begun: Instant) -> Result<Duration> {
        let limit = begun + PATIENCE;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let kept = self.kept.lock().expect("whole");
            let mut times: Vec<Instant> =
                kept.iter().map(|k| k.0).filter(|t| *t >= begun).collect();
            drop(kept);
            times.sort_unstable();
            if Instant::now() > limit {
                return Err("nothing is committed any more".into());
            }
            if times.last().is_none_or(|last| *last < begun + AFTER) {
                continue;
            }
            let from = std::iter::once(begun).chain(times.iter().copied());
            return Ok(from
                .zip(&times)
                .map(|(a, b)| *b - a)
                .max()
                .expect("one at least"));
        }
    }

    fn end(self) -> BTreeSet<u64> {
        self.stop.store(true, Ordering::SeqCst);
        for t in self.threads {
            t.join().expect("a writer");
        }
        self.kept
            .lock()
            .expect("whole")
            .iter()
            .map(|k| k.1)
            .collect()
    }
}

/// What the rounds of one kind have shown.
#[derive(Default)]
struct Found {
    /// Seconds, and whether the consensus leader was the primary.
    without: Vec<(f64, bool)>,
    two: usize,
}

fn start(
    program: &Path,
    directory: &Path,
    cables: &Arc<Cables>,
    guard: &mut Guard,
) -> Result<Vec<Node>> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut first = None;
    for i in 0..3 {
        let (port, http) = (server::free_port()?, server::free_port()?);
        let cable = format!("127.0.0.1:{}", cables.lay(i, port)?);
        let mut start = Command::new(program);
        let home = directory.join(format!("node-{i}"));
        start.arg("start").arg("--data").arg(home);
        start.args(["--listen", &format!("127.0.0.1:{port}")]);
        start.args(["--http", &format!("127.0.0.1:{http}")]);
        start.args(["--node-name", &format!("node-{i}")]);
        start.args(["--cluster-address", &cable]);
        // All that passes between them goes through the cables.
        start.args(["--shared-memory", "false"]);
        match &first {
            None => first = Some(cable),
            Some(first) => {
                let secret = directory.join("node-0/CANON_SECRET");
                start.args(["--join", first]);
                start.arg("--cluster-secret-file").arg(secret);
            }
        }
        let log = directory.join(format!("node-{i}.log"));
        let mut server = server::start("canon", start, port, "-TERM", &log, guard)?;
        let mut pids: Vec<u32> = nodes.iter().map(|n| n.server.pid()).collect();
        pids.push(server.pid());
        cables.know(pids);
        server.ready()?;
        nodes.push(Node { server, http });
    }
    Ok(nodes)
}

/// Waits until each of them counts for the next fail-over; which leads.
fn whole(nodes: &[Node]) -> Result<usize> {
    let limit = Instant::now() + PATIENCE;
    loop {
        let leads: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].leads()).collect();
        if let ([leads], true) = (&leads[..], nodes.iter().all(Node::is_whole)) {
            return Ok(*leads);
        }
        if Instant::now() > limit {
            return Err("the cluster does not become whole again".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn round(
    how: How,
    nodes: &mut [Node],
    cables: &Cables,
    writers: &Writers,
    guard: &mut Guard,
) -> Result<(f64, bool, bool)> {
    let primary = whole(nodes)?;
    std::thread::sleep(CALM);
    let decides = format!("canon_member_decides{{member=\"node-{primary}\"}} 1");
    let decides = nodes[primary].metrics().contains(&decides);
    let begun = Instant::now();
    match how {
        How::Kill => nodes[primary].server.kill()?,
        How::Stop => signal(nodes[primary].server.pid(), "-STOP")?,
        How::Cut => cables.cut(Some(primary)),
    }
    let without = writers.without(begun)?;
    match how {
        How::Kill => {
            nodes[primary].server.crash_and_restart(guard)?;
            cables.know(nodes.iter().map(|n| n.server.pid()).collect());
        }
        How::Stop => signal(nodes[primary].server.pid(), "-CONT")?,
        How::Cut => cables.cut(None),
    }
    std::thread::sleep(CALM);
    let two = nodes.iter().filter(|n| n.leads()).count() > 1;
    Ok((without.as_secs_f64(), decides, two))
}

/// The value below which this share of them lies.
fn share(mut all: Vec<f64>, of: f64) -> String {
    all.sort_by(f64::total_cmp);
    let at = ((all.len() as f64 * of).ceil() as usize).clamp(1, all.len().max(1)) - 1;
    all.get(at).map_or("-".into(), |s| match *s < 1.0 {
        true => format!("{:.0} ms", s * 1e3),
        false => format!("{s:.2} s"),
    })
}

fn row(how: How, found: &Found) -> String {
    let of = |apart: Option<bool>| -> Vec<f64> {
        let all = found.without.iter();
        let all = all.filter(|w| apart.is_none_or(|a| a == w.1));
        all.map(|w| w.0).collect()
    };
    let (all, there, elsewhere) = (of(None), of(Some(true)), of(Some(false)));
    format!(
        "| {} | {} | {} | {} | {} | {} ({}) | {} | {} |\n",
        how.name(),
        all.len(),
        share(all.clone(), 0.5),
        share(all.clone(), 0.99),
        share(all, 1.0),
        share(there.clone(), 0.5),
        there.len(),
        share(elsewhere, 0.5),
        found.two,
    )
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let program = program(&options.binary)?;
    let mut guard = Guard::new()?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let cables = Cables::new();
    let mut out = page::head("Without commits", "cargo xtask bench failover", args);
    let mut nodes = start(&program, &directory, &cables, &mut guard)?;
    let table = "CREATE TABLE kept (n bigint PRIMARY KEY)";
    nodes[0].server.sql(table)?;
    let ports: Vec<u16> = nodes.iter().map(|n| n.server.port).collect();
    let writers = Writers::start(options.writers, &ports);
    let hows = options.how.iter();
    let mut all: Vec<(How, Found)> = hows.map(|how| (*how, Found::default())).collect();
    for n in 0..options.rounds {
        for (how, found) in &mut all {
            let done = round(*how, &mut nodes, &cables, &writers, &mut guard)?;
            let (without, decides, two) = done;
            println!(
                "{} {n}: {without:.3} s, consensus leader at the primary: {decides}",
                how.name()
            );
            found.without.push((without, decides));
            found.two += usize::from(two);
        }
    }
    let acknowledged = writers.end();
    let leads = whole(&nodes)?;
    let there = nodes[leads].server.sql("SELECT n FROM kept")?;
    let number = |r: &Vec<Option<String>>| r.first()?.as_ref()?.parse().ok();
    let there: BTreeSet<u64> = there.rows.iter().filter_map(number).collect();
    let lost = acknowledged.difference(&there).count();
    let _ = writeln!(
        out,
        "- three servers of a cluster that runs itself, {} writers, one row per commit\n- acknowledged commits that are lost, over all rounds: {lost} of {}\n",
        options.writers,
        acknowledged.len()
    );
    out += "| loss | rounds | median | p99 | most | median, consensus leader at the primary (rounds) | median, elsewhere | two primaries |\n|---|---|---|---|---|---|---|---|\n";
    for (how, found) in &all {
        out += &row(*how, found);
    }
    println!("\n{out}");
    match options.write {
        true => page::store("failover", &out, &[]),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_of_the_values() {
        let all = vec![3.0, 0.2, 1.0, 2.0];
        assert_eq!(share(all.clone(), 0.5), "1.00 s");
        assert_eq!(share(all.clone(), 0.99), "3.00 s");
        assert_eq!(share(all, 0.25), "200 ms");
        assert_eq!(share(vec![], 0.5), "-");
    }
}
