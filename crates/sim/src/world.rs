//! Virtual time, the queue of events, and a run from its first event to its last.

use base::Position;
use base::split::Mode;
use env::ManualClock;
use replica::read::Fetch;
use replica::replay::Policy;
use replica::ship::Message;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use workload::rng::Rng;

use crate::clients::Session;
use crate::follower::Happens;
use crate::forward::Moving;
use crate::holding::{Holding, OnTheWay};
use crate::machine::{Machine, Running};
use crate::model::{Model, Terms};
use crate::network::{Network, Weather, damage};
use crate::primary::Primary;
use crate::reads::StrongRead;
use crate::site::{Certifying, Sites};

/// A primary and three replicas.
pub const NODES: usize = 4;

const SESSIONS: usize = 3;

/// Lines kept for a report.
const LINES: usize = 60;

/// Microseconds between `Time`s of a node.
const TICK: u64 = 20_000;

/// What can happen, and to which node in which of its lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// One of its threads makes a step.
    Work(usize, u64),
    Time(usize, u64),
    /// ... and which of its tries.
    Connect(usize, u64, u64),
    Promote(usize, u64),
    Restart(usize, u64),
    /// It is lost, if it leads.
    Lose(usize),
    /// It is told whom to follow.
    Redirect(usize, usize),
    /// A message arrives on a connection; at the primary's end, or the replica's.
    Deliver(usize, bool, Vec<u8>),
    /// An end of a connection hears that it broke.
    Broken(usize, bool),
    Client(usize),
    /// A transaction that began at a node arrives at another.
    Move(usize, usize, Moving),
    /// Something of a site's transaction.
    Site(Certifying),
    /// Words of a region are asked for: by whom, in which of its lives, of whom; and what was read comes back.
    Ask(usize, u64, usize, Fetch),
    Answer(usize, u64, usize, u64, Vec<u64>),
    /// A message about a snapshot that a primary keeps.
    Hold(OnTheWay),
    Chaos,
}

/// What the seed chose.
#[derive(Clone, Debug)]
pub struct Config {
    /// `synchronous_replicas`.
    pub needed: usize,
    /// Whether clients ask for less than the policy, too.
    pub weak: bool,
    pub policy: Policy,
    /// Whether operators are wrong now and then about what is down.
    pub sloppy: bool,
    pub weather: Weather,
    /// The node whose disk forgets the end of its log at a crash, though it was synced, and how often, of a hundred crashes.
    pub liar: Option<usize>,
    pub forgets: u64,
    /// Whether clients change stocks, too.
    pub stocks: bool,
    /// Whether replicas hold read leases (`lease`).
    pub leases: bool,
    /// Whether stocks may have further records, and in which mode they are split.
    pub further: Option<Mode>,
    /// Events while things break.
    pub events: u64,
}

/// What happened, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub seeds: u64,
    pub events: u64,
    pub commits: u64,
    pub aborts: u64,
    pub acknowledged: u64,
    /// Transactions that began at a replica: committed, and refused.
    pub moved: u64,
    pub refused: u64,
    /// Transactions of sites: told as committed, as refused, and times that one was sent again.
    pub certified: u64,
    pub not_certified: u64,
    pub sent_again: u64,
    /// Changes of stocks by deltas and by exact writes that were committed, and those that were refused.
    pub deltas: u64,
    pub exact: u64,
    pub too_few: u64,
    /// Steps of the worker of split values.
    pub worked: u64,
    pub crashes: u64,
    /// Nodes that ended in their process and started again there.
    pub ended: u64,
    pub promotions: u64,
    pub bootstraps: u64,
    pub set_aside: u64,
    /// Nodes that kept what they share with the history that they left.
    pub cut_back: u64,
    /// Copies that were not begun soon after one that did not come.
    pub put_off: u64,
    pub overruns: u64,
    /// Messages that were found to be damaged.
    pub damaged: u64,
    pub checkpoints: u64,
    pub snapshots: u64,
    pub reads: u64,
    /// Snapshots that a primary kept for transactions at replicas, and those that went on there.
    pub held: u64,
    pub held_moved: u64,
    /// Strong reads that came to their end, those of them that stood above what was visible, and those that might be old.
    pub strong: u64,
    pub ahead: u64,
    pub bounded: u64,
    pub fetches: u64,
    /// Timestamps by a lease, those of them above what was visible, and machines that stood still for a while.
    pub leased: u64,
    pub leased_ahead: u64,
    pub pauses: u64,
    /// Logs that lost their synced end; starts that were refused for that, by the anchor and by a replica; primaries that stopped for it.
    pub tails: u64,
    pub short: u64,
    pub ahead_found: u64,
    pub stopped: u64,
    /// Claims to be ahead that were not believed.
    pub doubted: u64,
    /// Commits acknowledged and lost, as their promise allowed.
    pub forgiven: u64,
    /// Forced promotions whose premise was false.
    pub false_premises: Vec<String>,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.seeds += 1;
        self.events += other.events;
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.acknowledged += other.acknowledged;
        self.moved += other.moved;
        self.refused += other.refused;
        self.certified += other.certified;
        self.not_certified += other.not_certified;
        self.sent_again += other.sent_again;
        self.deltas += other.deltas;
        self.exact += other.exact;
        self.too_few += other.too_few;
        self.worked += other.worked;
        self.crashes += other.crashes;
        self.ended += other.ended;
        self.promotions += other.promotions;
        self.bootstraps += other.bootstraps;
        self.set_aside += other.set_aside;
        self.cut_back += other.cut_back;
        self.put_off += other.put_off;
        self.overruns += other.overruns;
        self.damaged += other.damaged;
        self.checkpoints += other.checkpoints;
        self.snapshots += other.snapshots;
        self.reads += other.reads;
        self.strong += other.strong;
        self.ahead += other.ahead;
        self.held += other.held;
        self.held_moved += other.held_moved;
        self.bounded += other.bounded;
        self.fetches += other.fetches;
        self.leased += other.leased;
        self.leased_ahead += other.leased_ahead;
        self.pauses += other.pauses;
        self.tails += other.tails;
        self.short += other.short;
        self.ahead_found += other.ahead_found;
        self.stopped += other.stopped;
        self.doubted += other.doubted;
        self.forgiven += other.forgiven;
        self.false_premises.extend(other.false_premises.clone());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} events, {} commits, {} aborts, {} acknowledged, {} begun at replicas ({} more refused), {} reads, {} snapshots compared",
            self.events,
            self.commits,
            self.aborts,
            self.acknowledged,
            self.moved,
            self.refused,
            self.reads,
            self.snapshots
        )?;
        writeln!(
            f,
            "{} deltas of split values, {} exact writes, {} refused, {} steps of the worker",
            self.deltas, self.exact, self.too_few, self.worked
        )?;
        if self.certified > 0 {
            writeln!(
                f,
                "{} transactions of sites committed, {} refused, {} times one was sent again",
                self.certified, self.not_certified, self.sent_again
            )?;
        }
        writeln!(
            f,
            "{} strong reads, {} of them above what was visible, {} that might be old, {} fetches; {} snapshots kept for replicas, {} gone on there",
            self.strong, self.ahead, self.bounded, self.fetches, self.held, self.held_moved
        )?;
        if self.leased > 0 {
            writeln!(
                f,
                "{} timestamps by leases, {} of them above what was visible, {} machines stood still",
                self.leased, self.leased_ahead, self.pauses
            )?;
        }
        writeln!(
            f,
            "{} ends of logs forgotten, {} starts refused by the anchor, {} by a replica, {} primaries stopped, {} claims not believed",
            self.tails, self.short, self.ahead_found, self.stopped, self.doubted
        )?;
        write!(
            f,
            "{} crashes, {} ended in their process, {} promotions, {} bootstraps ({} put off), {} set aside ({} cut back), {} overruns, {} damaged messages, {} checkpoints, {} commits lost as allowed, \
             {} promotions on a false premise",
            self.crashes,
            self.ended,
            self.promotions,
            self.bootstraps,
            self.put_off,
            self.set_aside,
            self.cut_back,
            self.overruns,
            self.damaged,
            self.checkpoints,
            self.forgiven,
            self.false_premises.len()
        )
    }
}

pub struct World {
    pub seed: u64,
    pub dice: Rng,
    /// For the stocks, apart from the rest of a run.
    pub stock_dice: Rng,
    /// Microseconds.
    pub now: u64,
    pub config: Config,
    pub machines: Vec<Machine>,
    pub net: Network,
    pub model: Model,
    pub sessions: Vec<Session>,
    /// Strong reads under way.
    pub strong: Vec<StrongRead>,
    /// Transactions whose snapshot a primary keeps, and a number for each and for each connection.
    pub holding: Vec<Holding>,
    pub holds_begun: u64,
    /// Transactions of sites.
    pub sites: Sites,
    pub report: Report,
    /// Connections of programs that are no nodes (`stranger`).
    pub strangers: BTreeSet<usize>,
    /// The highest *published* of each term's primary, and the terms of its history.
    pub published: HashMap<u64, (Position, Terms)>,
    /// Terms that have acknowledged by the policy.
    pub acknowledging: BTreeSet<u64>,
    /// Where terms began.
    pub began: HashMap<u64, Position>,
    /// Where terms began that were allowed to lose something. Nodes that have not heard of them show it still.
    pub lossy: BTreeSet<Position>,
    /// Who was promoted last.
    pub newest_leader: Option<usize>,
    /// Nodes that the last forced promotion looked at.
    pub considered: usize,
    pub mending: bool,
    /// Clients write.
    pub writing: bool,
    /// Anchors are kept.
    pub anchoring: bool,
    /// Flushers sync what they have written.
    pub syncing: bool,
    /// Until when each machine stands still, and dice for that.
    pub still: [u64; NODES],
    pub lease_dice: Rng,
    pub clock: Arc<ManualClock>,
    queue: BinaryHeap<Reverse<(u64, u64, What)>>,
    sequence: u64,
    loud: bool,
    lines: VecDeque<String>,
}

impl World {
    pub fn new(seed: u64, loud: bool) -> World {
        let mut dice = Rng::new(seed);
        let bad = dice.below(3);
        let config = Config {
            needed: dice.below(3) as usize,
            weak: dice.percent(50),
            policy: Policy::ALL[(seed % 6) as usize],
            sloppy: dice.percent(25),
            weather: Weather {
                lost: bad * 3,
                doubled: bad * 2,
                late: bad * 4,
                damaged: bad * 2,
            },
            // No dice: the other seeds stay as they are.
            liar: seed
                .is_multiple_of(4)
                .then_some((seed / 4) as usize % NODES),
            forgets: 90,
            leases: false,
            stocks: !seed.is_multiple_of(2),
            further: [None, Some(Mode::Escrow), None, Some(Mode::Rows)][(seed % 4) as usize],
            events: 4_000,
        };
        let clock = Arc::new(ManualClock::new(0));
        let machine = |i: usize| {
            let follows = (i > 0).then_some(0);
            Machine::new(seed * 8 + i as u64, clock.clone(), follows)
        };
        World {
            seed,
            dice,
            stock_dice: Rng::new(!seed),
            now: 0,
            net: Network::new(config.weather),
            config,
            machines: (0..NODES).map(machine).collect(),
            model: Model::default(),
            sessions: (0..SESSIONS).map(|_| Session::default()).collect(),
            strong: Vec::new(),
            holding: Vec::new(),
            holds_begun: 0,
            sites: Sites::default(),
            report: Report::default(),
            strangers: BTreeSet::new(),
            published: HashMap::new(),
            acknowledging: BTreeSet::new(),
            began: HashMap::new(),
            lossy: BTreeSet::new(),
            newest_leader: None,
            considered: 0,
            mending: false,
            writing: true,
            anchoring: true,
            syncing: true,
            still: [0; NODES],
            lease_dice: Rng::new(!seed ^ 0x1ea5e),
            clock,
            queue: BinaryHeap::new(),
            sequence: 0,
            loud,
            lines: VecDeque::new(),
        }
    }

    /// A line of the run.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let line = format!("{:>9} us  {}", self.now, line());
        if self.loud {
            println!("{line}");
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The last events, one a line.
    pub fn last_lines(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        format!("{:?}\n{}", self.config, lines.join("\n"))
    }

    /// Something will happen after so many microseconds.
    pub fn later(&mut self, after: u64, what: What) {
        self.sequence += 1;
        let at = self.now + after;
        self.queue.push(Reverse((at, self.sequence, what)));
    }

    /// Puts a message on its way.
    pub fn send(&mut self, c: usize, to_primary: bool, bytes: Vec<u8>) {
        if !self.net.connections[c].alive {
            return;
        }
        let (now, dice) = (self.now, &mut self.dice);
        for at in self.net.arrivals(c, to_primary, now, dice) {
            let mut bytes = bytes.clone();
            if self.dice.below(1_000) < self.net.weather.damaged {
                damage(&mut bytes, &mut self.dice);
            }
            self.later(at - now, What::Deliver(c, to_primary, bytes));
        }
    }

    /// One end ends a connection; the other hears of it, perhaps.
    pub fn hang_up(&mut self, c: usize, by_replica: bool) {
        let connection = &mut self.net.connections[c];
        if !std::mem::replace(&mut connection.alive, false) {
            return;
        }
        let (replica, primary) = (connection.replica, connection.primary);
        if self.net.reaches(replica, primary) && self.dice.percent(80) {
            self.break_end(c, by_replica);
        }
    }

    /// An end hears that a connection broke; the primary's end, or the replica's.
    pub fn break_end(&mut self, c: usize, primary: bool) {
        let at = self.net.end_arrives(c, primary, self.now);
        self.later(at - self.now, What::Broken(c, primary));
    }

    /// A forced promotion, or a start, whose premise is false.
    pub fn false_premise(&mut self, what: String) {
        self.say(|| format!("FALSE PREMISE: {what}"));
        self.report.false_premises.push(what);
    }

    pub fn begin(&mut self) {
        let cluster = 0xca0_0000 + u128::from(self.seed);
        drop(self.machines[0].open(Some(cluster)));
        // The database is made before anybody else is asked for anything.
        let alone = Config {
            needed: 0,
            leases: false,
            ..self.config.clone()
        };
        let start = |w: &World, config: &Config| {
            let node = w.machines[0].start(false, config);
            node.unwrap_or_else(|why| panic!("the first node does not start: {why}"))
        };
        let node = start(self, &alone);
        let mut t = node.begin(crate::forward::options(), false);
        let mut define = || {
            t.begin_statement()?;
            t.lock_schema()?;
            t.change_schema(crate::schema::changes(self.config.further))?;
            t.end_statement()
        };
        let defined = define().and_then(|()| Ok(node.commit(t)?));
        defined.unwrap_or_else(|e| panic!("the table is not made: {e}"));
        node.append_step();
        node.sync_step();
        let written = node.checkpoint_step(true);
        written.unwrap_or_else(|e| panic!("the checkpoint failed: {e}"));
        let at = node.marks().flushed.get();
        drop(node);
        let node = start(self, &self.config);
        node.marks().decide(at);
        let mut p = Primary::new(node);
        self.machines[0].watched.renew(p.terms.clone());
        self.settled(0, &mut p);
        self.machines[0].up = Some(Running::Primary(Box::new(p)));
        for i in 1..NODES {
            let f = self.start_follower(i, 0, None);
            self.machines[i].up = Some(Running::Follower(Box::new(f)));
        }
        for i in 0..NODES {
            self.later(i as u64, What::Work(i, 0));
            self.later(TICK + i as u64, What::Time(i, 0));
        }
        for k in 0..SESSIONS {
            self.later(5_000, What::Client(k));
        }
        self.later(100_000, What::Chaos);
    }

    /// The whole run.
    pub fn run(&mut self) -> Report {
        self.say(|| "begins".into());
        let config = format!("{:?}", self.config);
        self.say(|| config);
        self.begin();
        while self.report.events < self.config.events {
            self.step();
        }
        self.heal()
    }

    /// Everything is mended, and the cluster must converge.
    pub fn heal(&mut self) -> Report {
        self.say(|| "everything is mended".into());
        self.mending = true;
        self.net.weather = Weather::CALM;
        self.net.cut.clear();
        // Writes go on while the cluster heals; then they end, and all must become equal.
        self.until("lead and follow", |w| w.is_led());
        let before = self.report.acknowledged;
        self.until("acknowledge again", |w| w.report.acknowledged > before + 3);
        self.writing = false;
        self.until("converge", |w| w.is_converged());
        self.until("tell what sites have asked", |w| w.are_sites_told());
        self.check_end();
        self.report.clone()
    }

    /// Steps until this holds.
    fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let mut steps = 0u64;
        while !holds(self) {
            if steps.is_multiple_of(500) {
                self.mend();
            }
            self.step();
            steps += 1;
            assert!(
                steps < 120_000,
                "the mended cluster does not {what}: {}",
                self.state()
            );
        }
    }

    /// Who is what, in a line.
    pub fn state(&self) -> String {
        let one = |(i, m): (usize, &Machine)| match &m.up {
            None => format!("{i} is down"),
            Some(Running::Primary(p)) => format!(
                "{i} leads term {} at {:?}, {} joined, {} pending, {} open, sealing {}",
                p.term,
                p.node.marks(),
                p.joined(),
                p.pending.len(),
                p.open.len(),
                p.is_sealing()
            ),
            Some(Running::Follower(f)) => format!(
                "{i} follows {} at {:?}",
                f.target,
                f.node
                    .as_ref()
                    .and_then(|n| n.following())
                    .map(|f| f.marks.clone())
            ),
        };
        let all: Vec<String> = self.machines.iter().enumerate().map(one).collect();
        all.join("; ")
    }

    /// One primary, whom all others follow live.
    fn is_led(&self) -> bool {
        let leader = (0..NODES).filter(|i| self.machines[*i].primary().is_some());
        let leader: Vec<usize> = leader.collect();
        let [leader] = leader[..] else { return false };
        let p = self.machines[leader].primary().expect("just found");
        !p.is_sealing() && p.joined() == NODES - 1
    }

    /// Everybody shows everything.
    fn is_converged(&self) -> bool {
        if !self.is_led() {
            return false;
        }
        if self.machines.iter().any(|m| m.up.is_none()) {
            return false;
        }
        let p = self.machines.iter().find_map(Machine::primary);
        let p = p.expect("it is led");
        let at = p.node.marks().installed.get();
        p.open.is_empty()
            && p.pending.is_empty()
            && p.shown() == Some(at)
            && self
                .machines
                .iter()
                .filter_map(Machine::follower)
                .all(|f| f.shown() == Some(at))
    }

    /// The next event.
    pub fn step(&mut self) {
        let Some(Reverse((at, _, what))) = self.queue.pop() else {
            panic!("nothing happens any more");
        };
        self.report.events += 1;
        self.clock
            .advance(Duration::from_micros(at.saturating_sub(self.now)));
        self.now = self.now.max(at);
        let Some(what) = self.when_it_moves(what) else {
            return;
        };
        let node = self.happen(what);
        let nodes = node.map_or(0..NODES, |i| i..i + 1);
        for i in nodes {
            self.check_node(i);
            if !self.stands_still(i) {
                self.reads_go_on(i);
                self.holds_go_on(i);
            }
        }
    }

    pub fn is_alive(&self, i: usize, life: u64) -> bool {
        self.machines[i].life == life && self.machines[i].up.is_some()
    }

    /// What happens; the node that it happens to, if it is one.
    fn happen(&mut self, what: What) -> Option<usize> {
        match what {
            What::Work(i, life) => {
                if self.is_alive(i, life) {
                    self.work(i);
                    let pause = 200 + self.dice.below(2_500);
                    self.later(pause, What::Work(i, life));
                }
                Some(i)
            }
            What::Time(i, life) => {
                if self.is_alive(i, life) {
                    self.on_node(i, |w, up| match up {
                        Running::Primary(p) => w.primary_time(i, p),
                        Running::Follower(f) => {
                            w.replica(i, f, Happens::Time);
                            w.replica(i, f, Happens::Tell);
                        }
                    });
                    self.reads_time(i);
                    self.later(TICK, What::Time(i, life));
                }
                Some(i)
            }
            What::Connect(i, life, tries) => {
                if self.is_alive(i, life) {
                    self.on_node(i, |w, up| {
                        if let Running::Follower(f) = up {
                            w.connect(i, f, tries);
                        }
                    });
                }
                Some(i)
            }
            What::Promote(i, life) => {
                if self.is_alive(i, life) {
                    self.promote(i, false);
                }
                None
            }
            What::Restart(i, life) => {
                if self.machines[i].life == life {
                    self.restart(i);
                }
                None
            }
            What::Lose(i) => {
                if !self.mending && self.machines[i].primary().is_some() {
                    self.crash(i);
                }
                None
            }
            What::Redirect(j, to) => {
                if self.machines[to].primary().is_some_and(|p| !p.is_sealing()) {
                    self.redirect(j, to);
                }
                None
            }
            What::Deliver(c, to_primary, bytes) => Some(self.deliver(c, to_primary, &bytes)),
            What::Broken(c, primary) => Some(self.broken(c, primary)),
            What::Client(k) => {
                let pause = 1_000 + self.dice.below(6_000);
                self.later(pause, What::Client(k));
                self.client(k)
            }
            What::Move(from, to, moving) => {
                self.moves_in(from, to, moving);
                Some(to)
            }
            What::Site(c) => self.certifying(c),
            What::Ask(i, life, to, fetch) => {
                self.ask_region(i, life, to, fetch);
                Some(to)
            }
            What::Answer(i, life, from, number, values) => {
                if self.is_alive(i, life) && self.net.reaches(i, from) {
                    self.region_answers(i, number, &values);
                }
                Some(i)
            }
            What::Hold(message) => Some(self.holds_hear(message)),
            What::Chaos => {
                if !self.mending {
                    self.stand_still();
                    self.chaos();
                    let pause = 5_000 + self.dice.below(90_000);
                    self.later(pause, What::Chaos);
                }
                None
            }
        }
    }

    /// Runs something on a node that is up.
    pub fn on_node<T>(
        &mut self,
        i: usize,
        act: impl FnOnce(&mut World, &mut Running) -> T,
    ) -> Option<T> {
        let mut up = self.machines[i].up.take()?;
        let done = act(self, &mut up);
        self.machines[i].up = Some(up);
        Some(done)
    }

    fn work(&mut self, i: usize) {
        let roll = self.dice.below(100);
        self.on_node(i, |w, up| match up {
            Running::Primary(p) => match roll {
                0..=29 => w.append(i, p),
                30..=59 if !w.syncing => {}
                30..=59 => w.sync(i, p),
                60..=84 => w.run_job(i, p),
                85..=89 => p.node.epoch_step(),
                90 => w.checkpoint(i, p),
                91 => w.keep_anchor(p.node.dir()),
                _ => p.node.reclaim_step(),
            },
            Running::Follower(f) => match roll {
                0..=29 => w.consume(i, f),
                30..=37 => w.persist(i, f),
                38 => {
                    if let Some(dir) = f.dir() {
                        w.keep_anchor(dir);
                    }
                }
                39 => {
                    if let Some(node) = &f.node {
                        node.reclaim_step();
                    }
                }
                _ => (0..4).for_each(|_| w.replay(i, f)),
            },
        });
    }

    /// The thread that keeps the anchor.
    pub fn keep_anchor(&self, dir: &wal::DataDir) {
        if self.anchoring {
            dir.note_reach()
                .unwrap_or_else(|e| panic!("the anchor is not written: {e}"));
        }
    }

    fn deliver(&mut self, c: usize, to_primary: bool, bytes: &[u8]) -> usize {
        let connection = self.net.connections[c].clone();
        let to = match to_primary {
            true => connection.primary,
            false => connection.replica,
        };
        if connection.reset || !self.net.reaches(connection.replica, connection.primary) {
            return to;
        }
        let Ok(message) = Message::decode(bytes) else {
            self.say(|| format!("node {to}: a damaged message ends connection {c}"));
            self.report.damaged += 1;
            self.on_node(to, |w, up| match up {
                Running::Primary(p) if to_primary => {
                    w.drop_link(to, p, c);
                    w.settled(to, p);
                }
                Running::Follower(f) if !to_primary && f.connection == Some(c) => {
                    f.connection = None;
                    w.hang_up(c, true);
                    w.replica(to, f, Happens::Lost);
                }
                _ => w.hang_up(c, !to_primary),
            });
            return to;
        };
        if !to_primary && self.strangers.contains(&c) {
            self.stranger_hears(c, &message);
            return to;
        }
        self.on_node(to, |w, up| match up {
            Running::Primary(p) if to_primary => w.primary_hears(to, p, c, message),
            Running::Follower(f) if !to_primary && f.connection == Some(c) => {
                w.replica(to, f, Happens::Message(message));
            }
            _ => w.hang_up(c, !to_primary),
        });
        to
    }

    fn broken(&mut self, c: usize, primary: bool) -> usize {
        let to = match primary {
            true => self.net.connections[c].primary,
            false => self.net.connections[c].replica,
        };
        self.on_node(to, |w, up| match up {
            Running::Primary(p) if primary => {
                w.drop_link(to, p, c);
                w.settled(to, p);
            }
            Running::Follower(f) if !primary && f.connection == Some(c) => {
                f.connection = None;
                w.replica(to, f, Happens::Lost);
            }
            _ => {}
        });
        to
    }
}
