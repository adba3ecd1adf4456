//! How long a cluster that runs itself is without commits when its primary is lost, paused or handed over.
//!
//! ```text
//! cargo xtask bench failover [--rounds 10] [--how kill,stop,cut,pause,promote] [--writers 4] [--with split,site] [--quiet SECONDS] [--curve 400ms,800ms,1500ms]
//!                            [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]
//! ```
//! Three servers on this machine, and writers that go to any of them, one row per commit. Each round does one thing to the primary:
//!
//! | `--how` | what happens | what must follow |
//! |---|---|---|
//! | `kill` | `kill -9` | another primary |
//! | `stop` | `SIGSTOP`, until commits have gone on for a while | another primary |
//! | `cut` | no byte passes between it and the other servers, while clients reach it still (`cables`) | another primary |
//! | `pause` | `SIGSTOP` for half a second; then the same for each other server | the same primary in the same term |
//! | `promote` | it hands over to another server as planned (`canon promote`) | that server leads |
//!
//! Then it comes back, and the next round begins when all three count for a fail-over. The consensus leader stands at the primary in every other round of a kind, and
//! elsewhere in the others: a planned hand-over before the round brings the primary there. Both are counted apart, as an election comes first where it is lost too.
//!
//! | figure | what it is |
//! |---|---|
//! | without commits | the longest time between two acknowledgements that follow each other, from the beginning of the round until commits have gone on for two seconds after it |
//! | lost | numbers that were acknowledged and are in no row at the end |
//! | fail-overs | rounds after which another server led, or the same one in a later term |
//! | two primaries | rounds in which two servers led at once (`leading`) |
//!
//! **`--with split`**: each transaction adds to a split value, too. At the end the value must be the number of rows. **`--with site`**: a site beside the members runs
//! transactions of its own, and follows the next primary by itself (`site`). Its time without commits is a row of its own.
//!
//! **`--quiet SECONDS`**: after the rounds clients load the cluster as much as they can, and nothing is done to it (`quiet`). No fail-over may come of it. `--how none`
//! leaves the rounds out.
//!
//! **`--curve`**: the same in a cluster of its own for each of these lengths of a lease (`failover.lease`). A shorter one brings the next commit sooner. It costs fail-overs that a
//! pause of half a second, or the load, would not have brought: both are counted, and are no faults there.
//!
//! The command fails where an acknowledged commit is lost, two servers led at once, or a pause or the load brought another primary.
//!
//! Left out on purpose: PostgreSQL with Patroni, which cannot be had here. What its documentation says stands in `docs/results/2026-11-29-failover.md`.

mod cables;
mod leading;
mod nodes;
mod quiet;
mod site;
mod writers;

use super::options::{number, program};
use super::page;
use crate::guard::Guard;
use crate::server;
use crate::{Result, command};
use cables::Cables;
use leading::Watch;
use nodes::{Node, whole};
use quiet::Quiet;
use site::Site;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use writers::Writers;

const USAGE: &str = "cargo xtask bench failover [--rounds 10] [--how kill,stop,cut,pause,promote | none] [--writers 4] [--with split,site] [--quiet SECONDS] [--curve 400ms,800ms,1500ms] [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]";

/// Of commits before a round.
const CALM: Duration = Duration::from_secs(1);
/// A pause that must not bring another primary.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the primary is handed over to have it where a round needs it.
const MOVES: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Kill,
    Stop,
    Cut,
    Pause,
    Promote,
}

impl How {
    fn parse(text: &str) -> Result<How> {
        match text {
            "kill" => Ok(How::Kill),
            "stop" => Ok(How::Stop),
            "cut" => Ok(How::Cut),
            "pause" => Ok(How::Pause),
            "promote" => Ok(How::Promote),
            _ => Err(format!("`{text}`: kill, stop, cut, pause or promote")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            How::Kill => "kill -9",
            How::Stop => "SIGSTOP",
            How::Cut => "cut off",
            How::Pause => "500 ms pause",
            How::Promote => "planned hand-over",
        }
    }
}

struct Options {
    rounds: usize,
    how: Vec<How>,
    writers: usize,
    split: bool,
    site: bool,
    /// How long the cluster is loaded and left alone.
    quiet: Option<Duration>,
    /// Lengths of leases, as the server takes them.
    curve: Vec<String>,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

fn hows(said: &str) -> Result<Vec<How>> {
    match said {
        "none" => Ok(Vec::new()),
        _ => said.split(',').map(How::parse).collect(),
    }
}

/// What runs beside plain rows at the members.
fn beside(options: &mut Options, said: &str) -> Result<()> {
    for what in said.split(',') {
        match what {
            "split" => options.split = true,
            "site" => options.site = true,
            _ => return Err(format!("`{what}`: split or site")),
        }
    }
    Ok(())
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        rounds: 10,
        how: vec![How::Kill, How::Stop, How::Cut, How::Pause, How::Promote],
        writers: 4,
        split: false,
        site: false,
        quiet: None,
        curve: Vec::new(),
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--rounds" => options.rounds = number(value()?)?,
            "--how" => options.how = hows(value()?)?,
            "--writers" => options.writers = number(value()?)?,
            "--with" => beside(&mut options, value()?)?,
            "--quiet" => options.quiet = Some(Duration::from_secs(number(value()?)?)),
            "--curve" => options.curve = value()?.split(',').map(str::to_owned).collect(),
            "--binary" => options.binary = Some(value()?.into()),
            "--tmpfs" => options.directory = "/dev/shm".into(),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

fn signal(pid: u32, name: &str) -> Result<()> {
    command::output(Command::new("kill").args([name, &pid.to_string()])).map(drop)
}

/// What one round has shown.
#[derive(Clone, Copy)]
struct Round {
    /// Seconds.
    without: f64,
    /// The consensus leader was the primary.
    decides: bool,
    /// Another server led afterwards, or the same one in a later term.
    failed_over: bool,
    /// Two led at once.
    two: bool,
    /// Seconds without commits at the site, if there is one.
    site: Option<f64>,
}

fn start(
    program: &Path,
    directory: &Path,
    lease: Option<&str>,
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
        if let Some(lease) = lease {
            start.args(["--failover-lease", lease]);
        }
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

/// The consensus leader, by what this server says.
fn decides(node: &Node, nodes: &[Node]) -> Option<usize> {
    let metrics = node.metrics();
    (0..nodes.len())
        .find(|i| metrics.contains(&format!("canon_member_decides{{member=\"node-{i}\"}} 1")))
}

fn promote(node: &Node) -> Result<()> {
    node.server.sql("SELECT canon_promote()").map(drop)
}

/// Has the consensus leader be the primary, or another server than the primary. The primary.
fn arrange(nodes: &[Node], together: bool) -> Result<usize> {
    let mut last = String::from("the consensus leader changes all the time");
    for _ in 0..MOVES {
        let primary = whole(nodes)?;
        let Some(decides) = decides(&nodes[primary], nodes) else {
            continue;
        };
        if (decides == primary) == together {
            return Ok(primary);
        }
        let heir = match together {
            true => decides,
            false => (primary + 1) % nodes.len(),
        };
        if let Err(e) = promote(&nodes[heir]) {
            // It may have gone through: the next look tells.
            last = e;
            std::thread::sleep(CALM);
        }
    }
    Err(format!(
        "the primary cannot be brought where the round needs it: {last}"
    ))
}

/// This server stands still for half a second.
fn pause(node: &Node) -> Result<()> {
    signal(node.server.pid(), "-STOP")?;
    std::thread::sleep(PAUSE);
    signal(node.server.pid(), "-CONT")
}

/// Hands over to this server: when that began. A primary whose heir does not keep up refuses, and goes on.
fn hand_over(heir: &Node) -> Result<Instant> {
    let mut tries = 0;
    loop {
        let begun = Instant::now();
        match promote(heir) {
            Ok(()) => return Ok(begun),
            Err(e) if tries == MOVES => return Err(e),
            Err(_) => tries += 1,
        }
        std::thread::sleep(CALM);
    }
}

/// One round. `together`: the consensus leader is the primary.
fn round(
    how: How,
    together: bool,
    nodes: &mut [Node],
    cables: &Cables,
    writers: &Writers,
    site: Option<&Site>,
    guard: &mut Guard,
) -> Result<Round> {
    let primary = arrange(nodes, together)?;
    std::thread::sleep(CALM);
    let decides = decides(&nodes[primary], nodes) == Some(primary);
    let before = nodes[primary].term();
    let watch = Watch::start(nodes.iter().map(|n| n.http).collect());
    let mut begun = Instant::now();
    match how {
        How::Kill => nodes[primary].server.kill()?,
        How::Stop => signal(nodes[primary].server.pid(), "-STOP")?,
        How::Cut => cables.cut(Some(primary)),
        How::Pause => pause(&nodes[primary])?,
        How::Promote => begun = hand_over(&nodes[(primary + 1) % nodes.len()])?,
    }
    let without = writers.without(begun)?;
    match how {
        How::Kill => {
            nodes[primary].server.crash_and_restart(guard)?;
            cables.know(nodes.iter().map(|n| n.server.pid()).collect());
        }
        How::Stop => signal(nodes[primary].server.pid(), "-CONT")?,
        How::Cut => cables.cut(None),
        How::Pause => {
            for i in (0..nodes.len()).filter(|i| *i != primary) {
                pause(&nodes[i])?;
                std::thread::sleep(CALM);
            }
        }
        How::Promote => {}
    }
    std::thread::sleep(CALM);
    let two = watch.end();
    let leads = whole(nodes)?;
    let at_site = site.map(|site| site.without(begun)).transpose()?;
    Ok(Round {
        without: without.as_secs_f64(),
        decides,
        failed_over: leads != primary || nodes[leads].term() != before,
        two,
        site: at_site.map(|without| without.as_secs_f64()),
    })
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

const HEAD: &str = "| loss | rounds | median | quartiles | p99 | most | median, consensus leader at the primary (rounds) | median, elsewhere (rounds) | fail-overs | two primaries |\n|---|---|---|---|---|---|---|---|---|---|\n";

fn row(how: How, rounds: &[Round]) -> String {
    let of = |apart: Option<bool>| -> Vec<f64> {
        let all = rounds.iter();
        let all = all.filter(|r| apart.is_none_or(|a| a == r.decides));
        all.map(|r| r.without).collect()
    };
    let (all, there, elsewhere) = (of(None), of(Some(true)), of(Some(false)));
    let counted = |is: fn(&Round) -> bool| rounds.iter().filter(|r| is(r)).count();
    format!(
        "| {} | {} | {} | {} to {} | {} | {} | {} ({}) | {} ({}) | {} | {} |\n",
        how.name(),
        all.len(),
        share(all.clone(), 0.5),
        share(all.clone(), 0.25),
        share(all.clone(), 0.75),
        share(all.clone(), 0.99),
        share(all, 1.0),
        share(there.clone(), 0.5),
        there.len(),
        share(elsewhere.clone(), 0.5),
        elsewhere.len(),
        counted(|r| r.failed_over),
        counted(|r| r.two),
    )
}

/// The site's times without commits; nothing: there was none.
fn at_site(all: &[(How, Vec<Round>)]) -> String {
    let mut out = String::new();
    for (how, rounds) in all {
        let all: Vec<f64> = rounds.iter().filter_map(|r| r.site).collect();
        if all.is_empty() {
            continue;
        }
        if out.is_empty() {
            out += "\n| without commits at the site | rounds | median | quartiles | p99 | most |\n|---|---|---|---|---|---|\n";
        }
        let [q1, median, q3, p99, most] =
            [0.25, 0.5, 0.75, 0.99, 1.0].map(|of| share(all.clone(), of));
        let (how, rounds) = (how.name(), all.len());
        out += &format!("| {how} | {rounds} | {median} | {q1} to {q3} | {p99} | {most} |\n");
    }
    out
}

/// What must not have happened.
fn faults(all: &[(How, Vec<Round>)], lost: usize, curve: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if lost > 0 {
        faults.push(format!("{lost} acknowledged commits are lost"));
    }
    for (how, rounds) in all {
        let two = rounds.iter().filter(|r| r.two).count();
        if two > 0 {
            faults.push(format!(
                "{}: two primaries at once in {two} rounds",
                how.name()
            ));
        }
        let moved = rounds.iter().filter(|r| r.failed_over).count();
        if *how == How::Pause && moved > 0 && !curve {
            faults.push(format!("{}: another primary in {moved} rounds", how.name()));
        }
    }
    faults
}

/// What one cluster has shown.
struct Found {
    rounds: Vec<(How, Vec<Round>)>,
    quiet: Option<Quiet>,
    /// Commits that were acknowledged, and those of them that are in no row.
    acknowledged: usize,
    lost: usize,
    /// Rows, and what their split value says.
    split: Option<(u64, u64)>,
    seconds: u64,
}

/// The one number that this query answers with.
fn count(node: &Node, sql: &str) -> Result<u64> {
    let rows = node.server.sql(sql)?.rows;
    let first = rows.first().and_then(|r| r.first()?.as_ref()?.parse().ok());
    first.ok_or(format!("{sql}: no number"))
}

/// All rounds in a cluster of its own, whose leases are so long.
fn run(
    options: &Options,
    program: &Path,
    directory: &Path,
    lease: Option<&str>,
    guard: &mut Guard,
) -> Result<Found> {
    let cables = Cables::new();
    let mut nodes = start(program, directory, lease, &cables, guard)?;
    nodes[0]
        .server
        .sql("CREATE TABLE kept (n bigint PRIMARY KEY)")?;
    if options.split {
        let table = "CREATE TABLE hot (id int PRIMARY KEY, n bigint NOT NULL) WITH (split = 'n')";
        nodes[0].server.sql(table)?;
        nodes[0].server.sql("INSERT INTO hot VALUES (1, 0)")?;
    }
    // Of any member; the founder's address goes through no cable.
    let join = format!("127.0.0.1:{}", nodes[0].server.port);
    let site = match options.site {
        true => Some(Site::start(
            program,
            directory,
            &join,
            options.split,
            guard,
        )?),
        false => None,
    };
    let ports: Vec<u16> = nodes.iter().map(|n| n.server.port).collect();
    let writers = Writers::start(options.writers, &ports, 1, options.split);
    let mut all: Vec<(How, Vec<Round>)> =
        options.how.iter().map(|how| (*how, Vec::new())).collect();
    let begun = Instant::now();
    let done = rounds(
        options,
        &mut all,
        &mut nodes,
        &cables,
        &writers,
        site.as_ref(),
        guard,
    );
    let seconds = begun.elapsed().as_secs();
    let mut acknowledged = writers.end();
    if let Err(e) = done {
        let shown: String = all.iter().map(|(how, found)| row(*how, found)).collect();
        return Err(format!("{e}\nuntil then:\n{HEAD}{shown}"));
    }
    if let Some(site) = site {
        acknowledged.extend(site.end());
    }
    let quiet = match options.quiet {
        None => None,
        Some(time) => Some(quiet::run(&nodes, options.writers, time)?),
    };
    let leads = &nodes[whole(&nodes)?];
    let there = leads.server.sql("SELECT n FROM kept")?;
    let number = |r: &Vec<Option<String>>| r.first()?.as_ref()?.parse().ok();
    let there: BTreeSet<u64> = there.rows.iter().filter_map(number).collect();
    let split = match options.split {
        false => None,
        true => Some((there.len() as u64, count(leads, "SELECT n FROM hot")?)),
    };
    Ok(Found {
        rounds: all,
        quiet,
        acknowledged: acknowledged.len(),
        lost: acknowledged.difference(&there).count(),
        split,
        seconds,
    })
}

impl Found {
    fn page(&self, options: &Options) -> String {
        let mut out = format!(
            "- three servers of a cluster that runs itself, {} writers, one row per commit; {} s in all\n- acknowledged commits that are lost, over all rounds: {} of {}\n",
            options.writers, self.seconds, self.lost, self.acknowledged
        );
        if let Some((rows, value)) = self.split {
            let _ = writeln!(
                out,
                "- each transaction adds 1 to a split value: {rows} rows, and the value is {value}"
            );
        }
        if options.site {
            out += "- a site beside the members runs transactions of its own, which count among these\n";
        }
        if !self.rounds.is_empty() {
            let _ = write!(out, "\n{HEAD}");
            for (how, found) in &self.rounds {
                out += &row(*how, found);
            }
            out += &at_site(&self.rounds);
        }
        if let Some(quiet) = &self.quiet {
            let _ = write!(out, "\n{}", quiet.page());
        }
        out
    }

    /// What must not have happened. `curve`: fail-overs without need are what is measured.
    fn faults(&self, curve: bool) -> Vec<String> {
        let mut faults = faults(&self.rounds, self.lost, curve);
        if let Some((rows, value)) = self.split.filter(|(rows, value)| rows != value) {
            faults.push(format!("{rows} rows, and the split value is {value}"));
        }
        faults.extend(self.quiet.iter().flat_map(|q| q.faults(curve)));
        faults
    }
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let program = program(&options.binary)?;
    let mut guard = Guard::new()?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let mut out = page::head("Without commits", "cargo xtask bench failover", args);
    let mut faults = Vec::new();
    if options.curve.is_empty() {
        let found = run(&options, &program, &directory, None, &mut guard)?;
        out += &found.page(&options);
        faults.extend(found.faults(false));
    }
    for lease in &options.curve {
        let home = directory.join(lease);
        std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        let found = run(&options, &program, &home, Some(lease.as_str()), &mut guard)?;
        let _ = write!(out, "\n## A lease of {lease}\n\n{}", found.page(&options));
        faults.extend(found.faults(true).iter().map(|f| format!("{lease}: {f}")));
    }
    println!("\n{out}");
    if options.write {
        page::store("failover", &out, &[])?;
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("\n")),
    }
}

fn rounds(
    options: &Options,
    all: &mut [(How, Vec<Round>)],
    nodes: &mut [Node],
    cables: &Cables,
    writers: &Writers,
    site: Option<&Site>,
    guard: &mut Guard,
) -> Result<()> {
    for n in 0..options.rounds {
        for (how, found) in &mut *all {
            let done = round(*how, n % 2 == 0, nodes, cables, writers, site, guard)
                .map_err(|e| format!("{}, round {n}: {e}", how.name()))?;
            println!(
                "{} {n}: {:.3} s, consensus leader at the primary: {}, fail-over: {}, two primaries: {}",
                how.name(),
                done.without,
                done.decides,
                done.failed_over,
                done.two
            );
            if let Some(without) = done.site {
                println!("{} {n}: {without:.3} s at the site", how.name());
            }
            found.push(done);
        }
    }
    Ok(())
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

    fn a_round(failed_over: bool, two: bool) -> Round {
        Round {
            without: 1.0,
            decides: true,
            failed_over,
            two,
            site: Some(2.5),
        }
    }

    #[test]
    fn a_site_has_a_table_of_its_own() {
        let with = at_site(&[(How::Kill, vec![a_round(true, false)])]);
        assert!(with.contains("| kill -9 | 1 | 2.50 s |"), "{with}");
        let mut without = a_round(true, false);
        without.site = None;
        assert_eq!(at_site(&[(How::Kill, vec![without])]), "");
    }

    #[test]
    fn a_fail_over_is_a_fault_after_a_pause_only() {
        let rounds = vec![a_round(true, false)];
        assert!(faults(&[(How::Kill, rounds.clone())], 0, false).is_empty());
        let paused = [(How::Pause, rounds)];
        assert_eq!(faults(&paused, 0, false).len(), 1);
        assert!(faults(&paused, 0, true).is_empty());
        assert_eq!(
            faults(&[(How::Kill, vec![a_round(true, true)])], 2, true).len(),
            2
        );
    }
}
