//! `canon bench-reads`: counts stale reads over the wire, at anything that speaks PostgreSQL's protocol.
//!
//! ```text
//! writers ──add one──▶ --write              readers ──point, range, table, snapshot──▶ --read (each)
//!     └──acknowledged──▶ workload::registers::Watch ◀──expected before, judged after──┘
//! probes: add one at --write and, once it is acknowledged, read the same register at --read at once
//! ```
//! All of it is one process, whose atomics are the one clock. Connections that break are made anew, and writers go on to the next
//! `--write`, so a run may go over crashes and promotions; what had no answer counts as begun and is not expected.
//!
//! Left out on purpose: peers with another protocol, prepared statements (tests with real drivers do), and deciding which writes a
//! fail-over may lose: with asynchronous replicas a promotion by force makes acknowledged writes, and so reads, old.

use super::figures::{Histogram, line};
use base::{Error, Result, SqlState};
use protocol::message::Rows;
use protocol::{Conninfo, Link};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use workload::registers::{Kind, Layout, Read, Tally, Watch};
use workload::rng::Rng;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct ReadsOptions {
    /// Where to write: HOST:PORT or a connection string; of several the next one is tried when one fails
    #[arg(long, value_name = "SERVER", required = true)]
    pub write: Vec<String>,
    /// Where to read; repeat it for each server
    #[arg(long, value_name = "SERVER", required = true)]
    pub read: Vec<String>,
    /// Connections that write as fast as they can
    #[arg(long, default_value_t = 4)]
    pub writers: usize,
    /// Connections that read, per --read
    #[arg(long, default_value_t = 4)]
    pub readers: usize,
    /// Pairs of connections that write and read the same at once, per --read
    #[arg(long, default_value_t = 1)]
    pub probes: usize,
    /// Writes per second of all writers; 0: no limit
    #[arg(long, default_value_t = 0.0)]
    pub write_rate: f64,
    /// Reads per second of all readers; 0: no limit
    #[arg(long, default_value_t = 0.0)]
    pub read_rate: f64,
    /// Ends after this time
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Ends when this many reads are done; 0: by time only
    #[arg(long, default_value_t = 0)]
    pub reads: u64,
    #[arg(long, default_value_t = 4)]
    pub tables: usize,
    /// Registers of each table
    #[arg(long, default_value_t = 16)]
    pub rows: usize,
    /// Share of the operations that go to one row
    #[arg(long, default_value_t = 0.3)]
    pub hot: f64,
    /// Said first on each connection that reads
    #[arg(long, value_name = "SQL")]
    pub read_init: Vec<String>,
    /// Said first on each connection that writes
    #[arg(long, value_name = "SQL")]
    pub write_init: Vec<String>,
    /// Fail when a read was stale
    #[arg(long)]
    pub fail_on_stale: bool,
    #[arg(skip)]
    pub beside: Arc<Beside>,
}

/// What somebody beside a run sees of it, and says.
#[derive(Debug, Default)]
pub struct Beside {
    /// Reads that are done.
    pub reads: AtomicU64,
    /// The run is to end.
    pub stop: AtomicBool,
}

impl ReadsOptions {
    /// The defaults, for tests and other programs.
    pub fn new(write: &[String], read: &[String]) -> ReadsOptions {
        ReadsOptions {
            write: write.to_vec(),
            read: read.to_vec(),
            writers: 4,
            readers: 4,
            probes: 1,
            write_rate: 0.0,
            read_rate: 0.0,
            seconds: 10.0,
            reads: 0,
            tables: 4,
            rows: 16,
            hot: 0.3,
            read_init: vec![],
            write_init: vec![],
            fail_on_stale: false,
            beside: Arc::default(),
        }
    }
}

/// Reads of one kind at one server.
#[derive(Clone, Default)]
pub struct Line {
    pub tally: Tally,
    pub latency: Histogram,
    /// How long before the read the write that it missed had been acknowledged.
    pub age: Histogram,
}

/// What a run saw.
#[derive(Clone, Default)]
pub struct Outcome {
    /// By (place in --read, kind of read).
    pub reads: BTreeMap<(usize, &'static str), Line>,
    pub writes: u64,
    pub write_latency: Histogram,
    /// Writes and reads that were answered with an error, or not at all.
    pub write_errors: u64,
    pub read_errors: u64,
    /// The last of them.
    pub last_error: Option<String>,
    pub seconds: f64,
}

impl Outcome {
    pub fn total(&self) -> Tally {
        let mut all = Tally::default();
        self.reads.values().for_each(|l| all += l.tally);
        all
    }

    fn merge(&mut self, other: Outcome) {
        for (key, l) in other.reads {
            let own = self.reads.entry(key).or_default();
            own.tally += l.tally;
            own.latency.merge(&l.latency);
            own.age.merge(&l.age);
        }
        self.writes += other.writes;
        self.write_latency.merge(&other.write_latency);
        self.write_errors += other.write_errors;
        self.read_errors += other.read_errors;
        self.last_error = other.last_error.or(self.last_error.take());
    }
}

/// A transaction that reads twice from one snapshot.
const SNAPSHOT: &str = "snapshot";
/// A read that follows a write at once.
const PROBE: &str = "probe";
/// Before a connection is tried again.
const PAUSE: Duration = Duration::from_millis(20);
/// Until the tables are to be seen at every --read.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures and prints a table.
pub fn run(options: &ReadsOptions, out: &mut dyn Write) -> Result<()> {
    let outcome = service::runtime()?.block_on(measure(options))?;
    print(options, &outcome, out)?;
    let all = outcome.total();
    if all.wrong > 0 {
        return Err(failed("reads showed values that nobody had written"));
    }
    if options.fail_on_stale && all.stale > 0 {
        return Err(failed(format!("{} stale reads", all.stale)));
    }
    Ok(())
}

fn print(options: &ReadsOptions, o: &Outcome, out: &mut dyn Write) -> Result<()> {
    let ms = |d: Duration| format!("{:.3}", d.as_secs_f64() * 1e3);
    line(
        out,
        "| reads at | kind | reads | stale | share | writes behind, at most | age of what was missed, p50 / p99 ms | latency p50 / p99 ms |",
    )?;
    line(out, "|---|---|---|---|---|---|---|---|")?;
    for ((at, kind), l) in &o.reads {
        let share = 100.0 * l.tally.stale as f64 / (l.tally.reads as f64).max(1.0);
        let age = match l.age.count() {
            0 => "-".into(),
            _ => format!("{} / {}", ms(l.age.quantile(0.5)), ms(l.age.quantile(0.99))),
        };
        let place =
            Conninfo::parse(&options.read[*at]).map_or_else(|_| at.to_string(), |p| p.to_string());
        line(
            out,
            &format!(
                "| {place} | {kind} | {} | {} | {share:.4} % | {} | {age} | {} / {} |",
                l.tally.reads,
                l.tally.stale,
                l.tally.most_behind,
                ms(l.latency.quantile(0.5)),
                ms(l.latency.quantile(0.99)),
            ),
        )?;
    }
    let all = o.total();
    line(
        out,
        &format!(
            "\nwrites {} ({:.0}/s) p50 {} ms p99 {} ms, errors {} writing {} reading{}",
            o.writes,
            o.writes as f64 / o.seconds,
            ms(o.write_latency.quantile(0.5)),
            ms(o.write_latency.quantile(0.99)),
            o.write_errors,
            o.read_errors,
            o.last_error
                .as_ref()
                .map_or(String::new(), |e| format!(" (the last: {e})")),
        ),
    )?;
    line(
        out,
        &format!(
            "reads {} ({:.0}/s) stale {} wrong {} seconds {:.1}",
            all.reads,
            all.reads as f64 / o.seconds,
            all.stale,
            all.wrong,
            o.seconds
        ),
    )
}

fn failed(what: impl std::fmt::Display) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, what.to_string())
}

/// What all tasks of a run share.
struct Run {
    options: ReadsOptions,
    layout: Layout,
    watch: Watch,
    write: Vec<Conninfo>,
    read: Vec<Conninfo>,
    began: Instant,
    done: AtomicU64,
}

/// Makes the tables, runs it all, and drops nothing.
pub async fn measure(options: &ReadsOptions) -> Result<Outcome> {
    let servers = |list: &[String]| -> Result<Vec<Conninfo>> {
        let parse = |s: &String| Conninfo::parse(s).map_err(|e| failed(format!("{s}: {e}")));
        list.iter().map(parse).collect()
    };
    let (write, read) = (servers(&options.write)?, servers(&options.read)?);
    let layout = Layout {
        tables: options.tables.max(1),
        rows: options.rows.max(1),
    };
    prepare(&layout, &write, &read, options).await?;
    let run = Arc::new(Run {
        watch: Watch::new(&layout),
        layout,
        write,
        read,
        options: options.clone(),
        began: Instant::now(),
        done: AtomicU64::new(0),
    });
    let mut tasks = Vec::new();
    for i in 0..options.writers {
        tasks.push(tokio::spawn(write_on(run.clone(), i)));
    }
    for at in 0..options.read.len() {
        for i in 0..options.readers {
            tasks.push(tokio::spawn(read_on(run.clone(), at, i)));
        }
        for i in 0..options.probes {
            tasks.push(tokio::spawn(probe(run.clone(), at, i)));
        }
    }
    let mut all = Outcome::default();
    for t in tasks {
        all.merge(t.await.map_err(failed)?);
    }
    all.seconds = run.began.elapsed().as_secs_f64();
    Ok(all)
}

async fn prepare(
    layout: &Layout,
    write: &[Conninfo],
    read: &[Conninfo],
    options: &ReadsOptions,
) -> Result<()> {
    let mut made = Err(failed("no --write"));
    for w in write {
        made = make(layout, w).await;
        if made.is_ok() {
            break;
        }
    }
    made?;
    let deadline = Instant::now() + PATIENCE;
    for server in read {
        let shown = async || -> Result<bool> {
            let mut link = connect(server, &options.read_init).await?;
            for table in 0..layout.tables {
                let read = layout.read(table * layout.rows, Kind::Table);
                if link.query(&read.sql).await?.len() != layout.rows {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        loop {
            match shown().await {
                Ok(true) => break,
                Err(e) if Instant::now() > deadline => return Err(e),
                Ok(false) if Instant::now() > deadline => {
                    return Err(failed(format!("{server} does not show the tables")));
                }
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    Ok(())
}

async fn make(layout: &Layout, server: &Conninfo) -> Result<()> {
    let mut link = connect(server, &[]).await?;
    for sql in layout.setup() {
        link.query(&sql).await?;
    }
    Ok(())
}

async fn connect(server: &Conninfo, init: &[String]) -> Result<Link> {
    let mut link = Link::connect(server, &[("application_name", "canon bench-reads")]).await?;
    for sql in init {
        link.query(sql).await?;
    }
    Ok(link)
}

impl Run {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn over(&self) -> bool {
        let o = &self.options;
        self.began.elapsed().as_secs_f64() >= o.seconds
            || (o.reads > 0 && self.done.load(Ordering::Relaxed) >= o.reads)
            || o.beside.stop.load(Ordering::Relaxed)
    }

    /// Adds one to a register, if `link` gives a connection.
    async fn add(&self, link: &mut Reconnect<'_>, register: usize, o: &mut Outcome) -> bool {
        let Some(l) = link.get(&mut o.write_errors, &mut o.last_error).await else {
            return false;
        };
        let sql = self.layout.add(register);
        self.watch.begin(register);
        let began = Instant::now();
        let value = l.query(&sql).await.and_then(|rows| {
            let value = rows.first().and_then(|r| r[0].as_ref()?.parse().ok());
            value.ok_or_else(|| failed("an increment gave no value"))
        });
        match value {
            Ok(value) => {
                self.watch.note(register, value, self.now());
                o.writes += 1;
                o.write_latency.add(began.elapsed().as_nanos() as u64);
                true
            }
            Err(e) => {
                o.write_errors += 1;
                link.failed(&e, &mut o.last_error);
                false
            }
        }
    }

    /// Runs a read of one or more statements and judges it.
    async fn look(
        &self,
        link: &mut Reconnect<'_>,
        at: usize,
        kind: &'static str,
        reads: &[Read],
        o: &mut Outcome,
    ) {
        let Some(l) = link.get(&mut o.read_errors, &mut o.last_error).await else {
            return;
        };
        let expected: Vec<Vec<u64>> = reads
            .iter()
            .map(|r| {
                r.registers
                    .iter()
                    .map(|g| self.watch.expected(*g))
                    .collect()
            })
            .collect();
        let (now, began) = (self.now(), Instant::now());
        let rows = match reads {
            [one] => l.query(&one.sql).await.map(|rows| vec![rows]),
            _ => snapshot(l, reads).await,
        };
        let latency = began.elapsed().as_nanos() as u64;
        let rows = match rows {
            Ok(rows) => rows,
            Err(e) => {
                o.read_errors += 1;
                return link.failed(&e, &mut o.last_error);
            }
        };
        let mut seen = Vec::new();
        for ((read, rows), expected) in reads.iter().zip(&rows).zip(&expected) {
            let value = |register: usize| {
                let row = |r: &&Vec<Option<String>>| {
                    let id: Option<usize> = r[0].as_ref()?.parse().ok();
                    Some(self.layout.register(read.registers[0], id?) == register)
                };
                let row = rows.iter().find(|r| row(r) == Some(true))?;
                row[1].as_ref()?.parse().ok()
            };
            for (register, expected) in read.registers.iter().zip(expected) {
                seen.push((*register, *expected, value(*register)));
            }
        }
        let entry = o.reads.entry((at, kind)).or_default();
        entry.latency.add(latency);
        if entry.tally.read(&self.watch, seen.iter().copied()) {
            let missed = seen.iter().filter(|s| s.2.is_some_and(|v| v < s.1));
            let missed = missed.filter_map(|s| self.watch.missed_at(s.0, s.2?));
            if let Some(missed) = missed.min() {
                entry.age.add(now.saturating_sub(missed));
            }
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        self.options.beside.reads.fetch_add(1, Ordering::Relaxed);
    }
}

async fn snapshot(l: &mut Link, reads: &[Read]) -> Result<Vec<Rows>> {
    l.query("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    let mut all = Vec::new();
    for r in reads {
        all.push(l.query(&r.sql).await?);
    }
    l.query("COMMIT").await?;
    Ok(all)
}

/// A connection that is made when it is needed, to one of several servers in turn.
struct Reconnect<'a> {
    servers: &'a [Conninfo],
    init: &'a [String],
    at: usize,
    link: Option<Link>,
}

impl<'a> Reconnect<'a> {
    fn new(servers: &'a [Conninfo], init: &'a [String]) -> Reconnect<'a> {
        Reconnect {
            servers,
            init,
            at: 0,
            link: None,
        }
    }

    async fn get(&mut self, errors: &mut u64, last: &mut Option<String>) -> Option<&mut Link> {
        if self.link.is_none() {
            match connect(&self.servers[self.at % self.servers.len()], self.init).await {
                Ok(l) => self.link = Some(l),
                Err(e) => {
                    *errors += 1;
                    self.failed(&e, last);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        self.link.as_mut()
    }

    /// What is to be tried again may stay; anything else is tried elsewhere.
    fn failed(&mut self, e: &Error, last: &mut Option<String>) {
        *last = Some(format!("{} {}", e.code(), e.fields().message));
        if !e.code().is_retryable() {
            self.link = None;
            self.at += 1;
        }
    }
}

/// Keeps a rate: each turn is due at a time, and late ones are caught up.
struct Pace {
    every: Duration,
    next: Instant,
}

impl Pace {
    fn new(rate: f64, workers: usize, i: usize) -> Option<Pace> {
        (rate > 0.0).then(|| {
            let every = Duration::from_secs_f64(workers as f64 / rate);
            Pace {
                every,
                next: Instant::now() + every.mul_f64(i as f64 / workers as f64),
            }
        })
    }

    async fn turn(pace: &mut Option<Pace>) {
        let Some(p) = pace else { return };
        tokio::time::sleep_until(p.next.into()).await;
        p.next += p.every;
    }
}

async fn write_on(run: Arc<Run>, i: usize) -> Outcome {
    let mut o = Outcome::default();
    let mut rng = Rng::new(i as u64);
    let mut pace = Pace::new(run.options.write_rate, run.options.writers, i);
    let mut link = Reconnect::new(&run.write, &run.options.write_init);
    while !run.over() {
        Pace::turn(&mut pace).await;
        let register = run.layout.draw(&mut rng, run.options.hot);
        run.add(&mut link, register, &mut o).await;
    }
    o
}

async fn read_on(run: Arc<Run>, at: usize, i: usize) -> Outcome {
    let mut o = Outcome::default();
    let mut rng = Rng::new(1_000 * (at as u64 + 1) + i as u64);
    let readers = run.options.readers * run.read.len();
    let mut pace = Pace::new(run.options.read_rate, readers, at * run.options.readers + i);
    let mut link = Reconnect::new(&run.read[at..=at], &run.options.read_init);
    while !run.over() {
        Pace::turn(&mut pace).await;
        let register = run.layout.draw(&mut rng, run.options.hot);
        // Mostly points, some of everything.
        let (kind, reads) = match rng.below(8) {
            0 => {
                let other = run.layout.draw(&mut rng, run.options.hot);
                let second = run.layout.read(other, Kind::Table);
                (
                    SNAPSHOT,
                    vec![run.layout.read(register, Kind::Point), second],
                )
            }
            n => {
                let kind = *Kind::ALL.get(n as usize).unwrap_or(&Kind::Point);
                (kind.name(), vec![run.layout.read(register, kind)])
            }
        };
        run.look(&mut link, at, kind, &reads, &mut o).await;
    }
    o
}

async fn probe(run: Arc<Run>, at: usize, i: usize) -> Outcome {
    let mut o = Outcome::default();
    let mut rng = Rng::new(2_000_000 + 1_000 * at as u64 + i as u64);
    let mut write = Reconnect::new(&run.write, &run.options.write_init);
    let mut read = Reconnect::new(&run.read[at..=at], &run.options.read_init);
    while !run.over() {
        let register = run.layout.draw(&mut rng, run.options.hot);
        if run.add(&mut write, register, &mut o).await {
            let reads = [run.layout.read(register, Kind::Point)];
            run.look(&mut read, at, PROBE, &reads, &mut o).await;
        }
    }
    o
}
