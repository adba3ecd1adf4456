//! One history: clients, the way of candidates and verdicts, and what has to hold at each commit.

use base::schema::FkAction;
use base::{Candidate, CommitWait, Committing, Isolation, Position};
use env::PowerCut;
use node::{Outcome, Verdict};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use txn::{Durability, TxnOptions};
use workload::rng::Rng;

use crate::histories::bench::{Bench, Slot, is_lost};
use crate::histories::ideal::{Ideal, Rows, Write};
use crate::histories::open::{Ask, Kept, Open, compare};
use crate::histories::tables::{Name, TABLES, Table};

/// Ids that a history has for itself.
pub const IDS: i64 = 8;

/// What histories came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub histories: u64,
    /// Commits at the primary, and of candidates.
    pub commits: [u64; 2],
    pub refused: u64,
    /// Candidates that came a second time, and outcomes that were asked for.
    pub again: u64,
    pub asked: u64,
    /// Groups that came too early or twice.
    pub gaps: u64,
    pub crashes: u64,
    pub rights: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.histories += other.histories;
        self.commits[0] += other.commits[0];
        self.commits[1] += other.commits[1];
        self.refused += other.refused;
        self.again += other.again;
        self.asked += other.asked;
        self.gaps += other.gaps;
        self.crashes += other.crashes;
        self.rights += other.rights;
    }
}

/// A client at a node.
struct Session {
    node: usize,
    /// The start of its node.
    life: u64,
    /// The greatest position of which it has seen something.
    seen: Position,
    busy: bool,
}

type Future = Pin<Box<dyn std::future::Future<Output = base::Result<CommitWait>> + Send>>;

/// A candidate, from COMMIT on.
struct Flight {
    of: Kept,
    /// The session's wait; none where the session has gone.
    waits: Option<(Future, Slot)>,
    number: u64,
    after: Position,
    bytes: Vec<u8>,
    /// Copies that the primary has read.
    read: u32,
    verdict: Option<base::Result<Position>>,
    /// It was said that it has not committed.
    refused: bool,
    told: bool,
}

/// See the head of the file.
pub struct History<'b> {
    bench: &'b mut Bench,
    dice: Rng,
    on_delete: FkAction,
    base: i64,
    keys: i64,
    ideal: Ideal,
    names: Vec<Name>,
    sessions: Vec<Session>,
    open: Vec<Open>,
    flights: Vec<Flight>,
    committed: BTreeMap<u64, Position>,
    begun: u64,
    pub counts: Counts,
    /// A line per event.
    trace: Option<&'b RefCell<Vec<String>>>,
}

impl<'b> History<'b> {
    /// A history over the keys from `base` on, which no other has had.
    pub fn new(
        bench: &'b mut Bench,
        seed: u64,
        base: i64,
        on_delete: FkAction,
        trace: Option<&'b RefCell<Vec<String>>>,
    ) -> History<'b> {
        let mut dice = Rng::new(seed);
        let keys = dice.between(2, 4);
        let ids = base..base + keys;
        let names = TABLES.iter().flat_map(|t| ids.clone().map(|id| (*t, id)));
        let nodes = bench.sites.len() + 1;
        let session = |node| Session {
            node,
            life: 0,
            seen: Position::ZERO,
            busy: false,
        };
        let mut history = History {
            names: names.collect(),
            sessions: (0..2 * nodes - 1).map(|n| session(n % nodes)).collect(),
            ideal: Ideal::new(Position::ZERO, Rows::new()),
            bench,
            dice,
            on_delete,
            base,
            keys,
            open: Vec::new(),
            flights: Vec::new(),
            committed: BTreeMap::new(),
            begun: 0,
            counts: Counts {
                histories: 1,
                ..Counts::default()
            },
            trace,
        };
        history.begin_with();
        history
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace.borrow_mut().push(what());
        }
    }

    /// Some parents and children, and all stocks, at every node.
    fn begin_with(&mut self) {
        let mut txn = self.bench.primary.begin(TxnOptions::default(), false);
        let mut first = Kept::new(0, 0, &TxnOptions::default());
        let ids: Vec<i64> = (self.base..self.base + self.keys).collect();
        let mut asks: Vec<Ask> = Vec::new();
        for id in &ids {
            asks.push(Ask::Put((Table::Stock, *id), vec![self.dice.between(0, 6)]));
            if self.dice.percent(60) {
                let row = vec![0, *id];
                asks.push(Ask::Put((Table::Parent, *id), row));
                if self.dice.percent(50) {
                    asks.push(Ask::Put((Table::Child, *id), vec![*id]));
                }
            }
        }
        for ask in asks {
            let ran = first.run(txn, &ask, self.bench, &self.ideal, self.on_delete);
            txn = ran.unwrap_or_else(|| panic!("{ask:?} of the first transaction fails"));
        }
        let at = self.bench.primary.commit(txn);
        let at = at.unwrap_or_else(|e| panic!("the first commit fails: {e}"));
        let made = self.ideal.commit(at.position(), &first.writes);
        made.unwrap_or_else(|why| panic!("{why}"));
        self.bench.flush();
        for node in 1..=self.bench.sites.len() {
            self.bench.catch_up(node);
        }
    }

    /// Plays it to its end.
    pub fn play(&mut self) {
        let most = 3 + self.dice.below(7);
        let mut events = 0;
        while self.begun < most || !self.open.is_empty() {
            self.event(self.begun < most);
            events += 1;
            if events == 400 {
                break;
            }
        }
        self.open.clear();
        // What is still on its way arrives, or never will.
        while let Some(i) = self
            .flights
            .iter()
            .position(|f| f.verdict.is_none() && !f.refused)
        {
            match self.dice.percent(70) {
                true => self.certify(i),
                false => self.ask(i),
            }
            self.bench.flush();
        }
        self.bench.flush();
        for node in 1..=self.bench.sites.len() {
            self.bench.catch_up(node);
        }
        for i in 0..self.flights.len() {
            self.tell(i);
            let f = &self.flights[i];
            let refused = f.refused && self.committed.contains_key(&f.number);
            assert!(
                !refused,
                "number {} was refused, and has committed",
                f.number
            );
            assert!(f.waits.is_none(), "number {} is not told", f.number);
        }
        for node in 0..=self.bench.sites.len() {
            compare(self.bench, node, &self.ideal, &self.names);
        }
        self.bench.forget();
    }

    fn event(&mut self, begins: bool) {
        let sites = self.bench.sites.len() as u64;
        let node = 1 + self.dice.below(sites) as usize;
        match self.dice.below(100) {
            0..=17 if begins => self.begin(),
            0..=39 => self.go_on(),
            40..=52 => self.commit(),
            53..=64 => self.any_flight(Self::certify),
            65..=68 => self.any_flight(Self::ask),
            69..=76 => self.any_flight(Self::tell),
            77..=82 => self.bench.flush(),
            83..=88 => {
                self.bench.send(node, 0);
            }
            89..=90 => self.disturb(node),
            91..=94 => {
                let worker = self.dice.below(4) as usize;
                self.bench.work(node, worker);
            }
            95 => self.bench.settle(node),
            96 => compare(self.bench, node, &self.ideal, &self.names),
            97..=98 => self.reclaim(),
            _ if self.dice.percent(30) => self.change_rights(),
            _ if self.dice.percent(30) => self.crash(node),
            _ => {}
        }
    }

    fn any_flight(&mut self, happens: fn(&mut Self, usize)) {
        if !self.flights.is_empty() {
            let i = self.dice.index(self.flights.len());
            happens(self, i);
        }
    }

    /// A group comes before the one that is due, or a second time.
    fn disturb(&mut self, node: usize) {
        let came = match self.dice.percent(50) {
            true => self.bench.send(node, 1),
            false => self.bench.send_again(node),
        };
        self.counts.gaps += u64::from(came);
    }

    fn reclaim(&mut self) {
        let node = self.dice.index(self.bench.sites.len() + 1);
        self.bench.node(node).reclaim_step();
        if node == 0 {
            self.ideal.reclaimed = self.bench.shown(0);
        }
        self.say(|| format!("node {node} reclaims"));
    }

    fn change_rights(&mut self) {
        if let Ok(at) = self.bench.change_rights() {
            self.ideal.rights = at;
            self.counts.rights += 1;
            self.say(|| format!("rights change at {at}"));
        }
    }

    fn crash(&mut self, node: usize) {
        self.open.retain(|o| o.kept.node != node);
        for f in self.flights.iter_mut().filter(|f| f.of.node == node) {
            f.waits = None;
        }
        let cut = match self.dice.percent(50) {
            true => PowerCut::KeepAll,
            false => PowerCut::LoseAll,
        };
        if self.dice.percent(50) {
            self.bench.node(node).persist_step(self.dice.percent(80));
        }
        self.say(|| format!("site {node} crashes"));
        self.bench.crash(node, cut);
        self.counts.crashes += 1;
        for s in self.sessions.iter_mut().filter(|s| s.node == node) {
            s.busy = false;
        }
    }

    fn life(&self, node: usize) -> u64 {
        match node {
            0 => 0,
            _ => self.bench.site(node).life,
        }
    }

    /// A session that waits for nothing begins a transaction; sometimes it goes to another node first, with its token.
    fn begin(&mut self) {
        let i = self.dice.index(self.sessions.len());
        if self.sessions[i].busy {
            return;
        }
        let mut node = self.sessions[i].node;
        if self.dice.percent(10) {
            node = self.dice.index(self.bench.sites.len() + 1);
        }
        // A session that was elsewhere, or whose site was, waits until it sees again what it has seen.
        let moves = node != self.sessions[i].node || self.life(node) != self.sessions[i].life;
        let shown = self.bench.shown(node);
        if moves && shown < self.sessions[i].seen {
            return;
        }
        let isolation = match self.dice.below(4) {
            0 => Isolation::ReadCommitted,
            1 => Isolation::RepeatableRead,
            _ => Isolation::Serializable,
        };
        let options = TxnOptions {
            isolation,
            // As in SQL, and as in the library.
            locking: isolation == Isolation::ReadCommitted || self.dice.percent(70),
            ..TxnOptions::default()
        };
        let life = self.life(node);
        let txn = self.bench.node(node).begin(options.clone(), false);
        self.sessions[i].node = node;
        self.sessions[i].life = life;
        self.sessions[i].busy = true;
        self.begun += 1;
        let kept = Kept::new(i, node, &options);
        self.open.push(Open { txn, kept });
        self.run_one(self.open.len() - 1);
    }

    fn go_on(&mut self) {
        if !self.open.is_empty() {
            let i = self.dice.index(self.open.len());
            self.run_one(i);
        }
    }

    /// A statement of an open transaction.
    fn run_one(&mut self, i: usize) {
        let ask = self.draw();
        let Open { txn, mut kept } = self.open.swap_remove(i);
        let ran = kept.run(txn, &ask, self.bench, &self.ideal, self.on_delete);
        let (session, at, goes_on) = (kept.session, kept.snapshot, ran.is_some());
        self.say(|| {
            let (node, level) = (kept.node, kept.level);
            format!("session {session} at node {node}, {level:?} at {at}: {ask:?}: {goes_on}")
        });
        let s = &mut self.sessions[session];
        assert!(
            at == Position::ZERO || at >= s.seen,
            "session {session} at node {} stands at {at} and has seen {}",
            kept.node,
            s.seen
        );
        s.seen = s.seen.max(at);
        match ran {
            Some(txn) => self.open.push(Open { txn, kept }),
            None => s.busy = false,
        }
    }

    fn draw(&mut self) -> Ask {
        let dice = &mut self.dice;
        let mut id = || self.base + dice.between(0, self.keys - 1);
        let (a, b) = (id(), id());
        let table = TABLES[dice.index(3)];
        match dice.below(20) {
            0..=4 => Ask::Get((table, a)),
            5..=6 => Ask::Scan(a, a + dice.between(1, 3)),
            7..=8 => Ask::Lock((table, a)),
            9..=12 => {
                let row = vec![dice.between(0, 99), self.base + dice.between(0, IDS - 1)];
                Ask::Put((Table::Parent, a), row)
            }
            13 => Ask::Put((Table::Child, a), vec![b]),
            14 => Ask::Put((Table::Stock, a), vec![dice.between(0, 9)]),
            15 => Ask::Delete((Table::Parent, a)),
            16 => Ask::Delete((Table::Child, a)),
            _ => {
                let by = dice.between(-4, 3);
                let by = if by == 0 { 1 } else { by };
                let need = dice.percent(60).then(|| (-by).max(0) + dice.between(0, 2));
                Ask::Add(a, by, need)
            }
        }
    }

    /// An open transaction ends.
    fn commit(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let i = self.dice.index(self.open.len());
        let Open { txn, kept: o } = self.open.swap_remove(i);
        if !txn.has_writes() {
            self.sessions[o.session].busy = false;
            return;
        }
        if o.node == 0 {
            let done = self.bench.primary.commit(txn);
            self.sessions[o.session].busy = false;
            match done {
                Ok(wait) => {
                    self.counts.commits[0] += 1;
                    self.sessions[o.session].seen = wait.position();
                    self.committed_at(wait.position(), &o, None);
                }
                Err(e) => self.refused(&o, &e),
            }
            return;
        }
        self.bench.numbers += 1;
        let number = self.bench.numbers;
        match self.bench.node(o.node).committing(txn, number) {
            // What it inserted it has deleted again.
            Committing::Done(Ok(_)) => {
                let mut rows = o.met.iter();
                let nothing = rows.all(|(n, m)| m.0.is_none() && o.writes[n] == Write::Gone);
                assert!(nothing, "a site commits by itself");
                self.sessions[o.session].busy = false;
            }
            Committing::Done(Err(e)) => {
                self.sessions[o.session].busy = false;
                self.refused(&o, &e);
            }
            Committing::Later(future) => {
                let asked = self.bench.site(o.node).mailbox.fetch();
                let (request, slot) = asked.expect("it asks");
                assert_eq!(request.number, number);
                let (node, session) = (o.node, o.session);
                self.say(|| format!("session {session} at site {node}: COMMIT, number {number}"));
                self.flights.push(Flight {
                    of: o,
                    waits: Some((future, slot)),
                    number,
                    after: request.after,
                    bytes: request.candidate,
                    read: 0,
                    verdict: None,
                    refused: false,
                    told: false,
                });
            }
        }
    }

    /// A copy of a candidate arrives.
    fn certify(&mut self, i: usize) {
        let f = &mut self.flights[i];
        f.read += 1;
        self.counts.again += u64::from(f.read > 1);
        let candidate = Candidate::decode(&f.bytes).expect("just encoded");
        let (number, again) = (f.number, f.read > 1);
        let after = match again {
            true => candidate.footprint.snapshot,
            false => Position::MAX,
        };
        let made = self
            .bench
            .primary
            .certify_as(&candidate, Durability::On, after);
        let before = self.committed.get(&number).copied();
        match made {
            Ok(Verdict::Committed(wait)) => {
                let at = wait.position();
                self.say(|| format!("number {number} has committed at {at}"));
                assert!(
                    before.is_none_or(|b| b == at),
                    "number {number} has committed at {before:?}, and at {at}"
                );
                self.flights[i].verdict = Some(Ok(at));
                if before.is_none() {
                    assert!(
                        !self.flights[i].refused,
                        "number {number} was refused, and commits at {at}"
                    );
                    self.counts.commits[1] += 1;
                    self.committed.insert(number, at);
                    let of = self.flights[i].of.clone();
                    self.committed_at(at, &of, Some(number));
                }
            }
            Ok(Verdict::Running) => {}
            Err(e) => {
                self.say(|| format!("number {number} is refused: {e}"));
                assert!(
                    before.is_none(),
                    "number {number} has committed at {before:?} and is refused: {e}"
                );
                if !self.flights[i].refused {
                    let of = self.flights[i].of.clone();
                    self.refused(&of, &e);
                }
                let f = &mut self.flights[i];
                (f.refused, f.verdict) = (true, Some(Err(e)));
            }
        }
    }

    /// A site asks what has become of a candidate.
    fn ask(&mut self, i: usize) {
        let f = &self.flights[i];
        let (number, after) = (f.number, f.after);
        let before = self.committed.get(&number).copied();
        let outcome = self.bench.primary.outcome(number, after);
        self.counts.asked += 1;
        self.say(|| format!("number {number} is asked for: {outcome:?}"));
        match outcome {
            Outcome::Committed(at) => {
                assert_eq!(before, Some(at), "number {number}");
                self.flights[i].verdict = Some(Ok(at));
            }
            Outcome::Aborted => {
                assert_eq!(
                    before, None,
                    "number {number} is said to have not committed"
                );
                let e = base::Error::new(base::SqlState::SERIALIZATION_FAILURE, "asked for");
                let f = &mut self.flights[i];
                (f.refused, f.verdict) = (true, Some(Err(e)));
            }
            Outcome::Running => assert!(before.is_some(), "number {number} runs"),
            Outcome::Unknown => panic!("number {number} is forgotten"),
        }
    }

    /// The verdict comes to its site, by itself or in the log, and to the session once it is shown.
    fn tell(&mut self, i: usize) {
        let f = &mut self.flights[i];
        let Some((future, slot)) = &mut f.waits else {
            return;
        };
        let (node, number) = (f.of.node, f.number);
        let shown = self.bench.shown(node);
        let in_log = self.bench.node(node).committed_at(number);
        if let Some(at) = in_log {
            assert_eq!(self.committed.get(&number), Some(&at), "number {number}");
        }
        let published = self.bench.primary.marks().published.get();
        let known = match &f.verdict {
            // A verdict leaves when the commit is durable.
            Some(Ok(at)) if *at <= published => Some(Ok(*at)),
            Some(Ok(_)) | None => in_log.filter(|at| *at <= shown).map(Ok),
            Some(Err(e)) => Some(Err(e.clone())),
        };
        if let Some(known) = known
            && !f.told
        {
            slot.put(known);
            f.told = true;
        }
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(done) = future.as_mut().poll(&mut context) else {
            return;
        };
        f.waits = None;
        let session = f.of.session;
        self.sessions[session].busy = false;
        match done {
            Ok(wait) => {
                let at = wait.position();
                assert_eq!(
                    self.committed.get(&number),
                    Some(&at),
                    "number {number} is told"
                );
                assert!(
                    at <= shown,
                    "number {number} is told at site {node} at {at}, and shown is {shown}"
                );
                let s = &mut self.sessions[session];
                s.seen = s.seen.max(at);
            }
            Err(e) => assert!(is_lost(&e), "number {number}: {e}"),
        }
    }

    /// A transaction has committed: all that it was promised holds just before.
    fn committed_at(&mut self, at: Position, o: &Kept, number: Option<u64>) {
        let (before, ideal) = (self.ideal.at(at.prev()), &self.ideal);
        let who = format!(
            "{:?} of node {} at {at}, from {}",
            o.level, o.node, o.snapshot
        );
        // What it inserted and deleted again is no change, also of a row that another one has inserted since.
        let came_and_went = |name: &Name| o.met[name].0.is_none() && o.writes[name] == Write::Gone;
        for (name, (met, snapshot)) in &o.met {
            if came_and_went(name) || matches!(o.writes[name], Write::Add(_)) {
                continue;
            }
            let now = before.get(name);
            assert_eq!(now, met.as_ref(), "{who}: {name:?} is not what it replaced");
            let changed = ideal.last_change(name, at.prev());
            let forgotten = now.is_none() && changed <= ideal.reclaimed;
            assert!(
                changed <= *snapshot || forgotten,
                "{who}: {name:?} was changed at {changed}"
            );
        }
        for (name, (row, changed)) in &o.locked {
            let now = (before.get(name), ideal.last_change(name, at.prev()));
            assert_eq!(now, (Some(row), *changed), "{who}: {name:?} was locked");
        }
        for (name, seen) in &o.seen {
            let moved = matches!(o.writes.get(name), Some(Write::Add(_)));
            let counts = match o.level {
                Isolation::Serializable => true,
                Isolation::RepeatableRead => moved,
                Isolation::ReadCommitted => false,
            };
            assert!(
                !counts || before.get(name) == seen.as_ref(),
                "{who}: it read {seen:?} of {name:?}, and before it stands {:?}",
                before.get(name)
            );
        }
        for (id, need) in o.needs.iter().filter(|_| number.is_some()) {
            let value = before.get(&(Table::Stock, *id)).map(|r| r[0]);
            assert!(value >= Some(*need), "{who}: {value:?} is less than {need}");
        }
        assert!(
            number.is_none() || ideal.rights <= o.first,
            "{who}: rights changed at {}, and it began at {}",
            ideal.rights,
            o.first
        );
        let mut writes = o.writes.clone();
        writes.retain(|name, _| !came_and_went(name));
        let made = self.ideal.commit(at, &writes);
        made.unwrap_or_else(|why| panic!("{who}: {why}"));
    }

    /// A transaction was refused: for something.
    fn refused(&mut self, o: &Kept, e: &base::Error) {
        self.counts.refused += 1;
        // What runs without locks finds at its commit what a constraint says.
        let constraints = [
            base::SqlState::UNIQUE_VIOLATION,
            base::SqlState::FOREIGN_KEY_VIOLATION,
        ];
        let violates = o.node == 0 && constraints.contains(&e.code());
        assert!(
            is_lost(e) || violates,
            "{:?} of node {}: {e}",
            o.level,
            o.node
        );
        let mut held = self.open.iter().filter(|p| p.kept.node == 0);
        let held = held.any(|p| p.kept.meets(o) || o.meets(&p.kept));
        let changed = self.ideal.has_changed(&o.used, &o.constrained(), o.first);
        assert!(
            held || changed || self.ideal.rights > o.first,
            "{:?} of node {} from {} is refused for nothing: {e}",
            o.level,
            o.node,
            o.first
        );
    }
}
