//! The deciders in small worlds over an ideal log: seeded delays, cut links, pauses, crashes, clocks that drift, members that leave and join, and settings
//! that are changed.
//!
//! The consensus is a list that all see late, with a leader that is replaced now and then and does not know it. A copy's log is a list of records. The
//! rules that hold after each event:
//!
//! | rule | what would break it |
//! |---|---|
//! | what was acknowledged stands in the log of each later leader | a replica is named that lacks it |
//! | a strong read at a primary that holds its lease shows all that was acknowledged anywhere before | a lease that is over too late |
//! | a term has one leader | two names for one term |
//! | a site leads only where the members have said that it may | a site is named because it stands furthest |
//!
//! In worlds where commits wait for no replica (`failover.max_loss`), the first rule is another one: what a later leader lacks was acknowledged within the time that the
//! catalogue names, before the copies were asked.
//!
//! Planted faults break each of them but the third. Each must be found within the same seeds that pass without it.
//!
//! Left out on purpose: openraft itself, and disks, which `cargo xtask sim --control` runs. A crash keeps the log and the promise, which are written before they are answered.

use cluster::waiting::Seen;
use cluster::{
    Action, Answer, Ballots, Before, Catalogue, Command, End, Failover, Holder, Kind, Member,
    Phase, Policies, Request, Standing, Terms, Testimony, Waiting,
};
use env::{Random, SeededRandom};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const MS: u64 = 1_000_000;
const SECONDS: u64 = 1000 * MS;

/// A record: a write of a client, or the beginning of a term.
type Log = Vec<(u64, u64)>;

#[derive(Clone, Debug)]
enum Event {
    /// A node looks at what is to be done.
    Tick,
    /// A client writes at this node, or reads from it.
    Write,
    Read,
    /// An entry of the consensus log arrives.
    Learn(usize),
    /// A proposal reaches the consensus. `Some`: it holds only while that election does.
    Propose(Option<u64>, Command),
    /// The node hears that it was elected.
    Elected(u64, Before),
    Request(Request),
    /// A majority was asked after the request; whether this election still holds is seen on the way.
    Confirm(u64, Request),
    Granted(Request),
    Ask(u64, usize),
    Answer(u64, usize, Answer),
    /// The leader of a term sends its log, how much of it is acknowledged, and the time by its clock; the copy answers with how much of it is there.
    Append(u64, usize, Log, (usize, u64)),
    Acked(u64, usize, usize),
    Chaos,
}

struct Primary {
    term: u64,
    holder: Holder,
    waiting: Waiting,
    /// Length of the log at the beginning of the term.
    start: usize,
    acked: BTreeMap<u64, usize>,
    acknowledged: usize,
    /// How many copies a commit waits for, and which copies there are; and what was acknowledged by older rules, or in an earlier life.
    rule: (usize, Vec<u64>),
    ruled: usize,
    /// What was acknowledged at the last look.
    looked: usize,
}

struct Node {
    /// Local nanoseconds = offset + real * rate / 1000.
    rate: u64,
    offset: u64,
    /// The last pause, from and until.
    stopped: u64,
    paused: u64,
    /// Whether it is down, and until when.
    down: u64,
    life: u64,
    /// When it was part of a majority last that confirmed a consensus leader, or was asked for a lease, by its own clock.
    took_part: u64,
    catalogue: Catalogue,
    applied: usize,
    log: Log,
    standing: Standing,
    /// The last term whose beginning stands in the log.
    term: u64,
    primary: Option<Primary>,
    control: Option<(u64, Failover)>,
    /// By the local clock: it has all that its leader had acknowledged by then.
    fresh: Option<u64>,
    /// Until when no term begins here, and how many have not since one did.
    unable: u64,
    failed: u32,
    /// How many leaders' messages have come since the start, and the least that they took, by the local clock and the leaders'.
    took: (u32, i64),
}

struct World {
    dice: SeededRandom,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, (usize, Event)>,
    sequence: u64,
    nodes: Vec<Node>,
    /// The ideal log and the catalogue at its end.
    entries: Vec<Command>,
    truth: Catalogue,
    election: u64,
    elected: usize,
    cut: BTreeSet<usize>,
    /// A majority is there before this one has answered.
    slow: usize,
    next_write: u64,
    /// All that was acknowledged to a client, ever, but for what was lost as it may be.
    acknowledged: BTreeSet<u64>,
    acknowledged_at: BTreeMap<u64, u64>,
    /// When a copy answered first under a term.
    asked_at: BTreeMap<u64, u64>,
    /// Terms since the last leader's for which a name was agreed on that may lack commits, and of how many milliseconds. Not each of them begins.
    told: Vec<(u64, u64)>,
    leaders: BTreeMap<u64, usize>,
    wrong: Option<String>,
    report: Report,
    /// Commits wait for no replica.
    lossy: bool,
}

#[derive(Default, Debug)]
struct Report {
    acknowledged: usize,
    reads: usize,
    failovers: usize,
    degraded: usize,
    handed_over: usize,
    overtaken: usize,
    refused: usize,
    left: usize,
    lost: usize,
    /// Terms that could not begin where the leader was named first, and began elsewhere.
    passed_over: usize,
    able_again: usize,
    /// Changes of settings that were proposed.
    set: usize,
    /// Terms that a site has led.
    by_sites: usize,
}

impl World {
    /// `lossy`: commits wait for no replica.
    fn new(seed: u64, lossy: bool) -> World {
        let dice = SeededRandom::new(seed);
        let mut world = World {
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            nodes: vec![],
            entries: vec![],
            truth: Catalogue::default(),
            election: 1,
            elected: 0,
            cut: BTreeSet::new(),
            slow: 0,
            next_write: 1,
            acknowledged: BTreeSet::new(),
            acknowledged_at: BTreeMap::new(),
            asked_at: BTreeMap::new(),
            told: vec![],
            leaders: BTreeMap::new(),
            wrong: None,
            report: Report::default(),
            lossy,
            dice,
        };
        let members = 3 + world.below(2) as usize;
        let witness = members == 3 && world.below(3) == 0;
        let mut policies = Policies {
            synchronous_replicas: (members == 4 && world.below(2) == 0).then_some(2),
            degrade_after: (world.below(2) == 0).then_some(400),
            lease: (world.below(3) == 0).then_some(600),
            ..Policies::default()
        };
        if lossy {
            policies = Policies {
                synchronous_replicas: Some(0),
                max_loss: Some(4000),
                ..Policies::default()
            };
        }
        // One more is far away.
        let site = world.below(3) == 0;
        policies.sites_may_lead = site && world.below(2) == 0;
        for i in 0..members + usize::from(site) {
            let kind = match i {
                _ if i == members => Kind::Site,
                _ if witness && i == members - 1 => Kind::Witness,
                _ => Kind::Server,
            };
            let member = world.add(kind);
            let node = i as u64;
            world.commit(match i {
                0 => Command::Found {
                    node,
                    member,
                    term: 1,
                },
                _ => Command::Join { node, member },
            });
            // The founder says it before another one joins.
            if i == 0 {
                let (policies, before) = (policies.clone(), None);
                world.commit(Command::Set { policies, before });
            }
        }
        let before = Before {
            granted: world.local(0),
            replaced: None,
        };
        world.at(0, 0, Event::Elected(1, before));
        world.at(2 * SECONDS, 0, Event::Chaos);
        world
    }

    /// A node with an empty copy, which is a member as soon as the members have agreed on that.
    fn add(&mut self, kind: Kind) -> Member {
        let i = self.nodes.len();
        let rate = 955 + self.below(91);
        let offset = self.below(1000 * SECONDS);
        self.nodes.push(Node {
            rate,
            offset,
            stopped: 0,
            paused: 0,
            down: 0,
            life: 1,
            took_part: offset + self.now / 1000 * rate,
            catalogue: Catalogue::default(),
            applied: 0,
            log: vec![],
            standing: Standing::default(),
            term: 0,
            primary: None,
            control: None,
            fresh: None,
            unable: 0,
            failed: 0,
            took: (0, i64::MAX),
        });
        let first = self.below(50 * MS);
        self.at(first, i, Event::Tick);
        self.at(first, i, Event::Write);
        self.at(first, i, Event::Read);
        Member {
            name: format!("n{i}"),
            address: format!("n{i}:1"),
            kind,
            level: 0,
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.dice.next_u64() % n
    }

    fn at(&mut self, after: u64, node: usize, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + after, self.sequence)));
        self.events.insert(self.sequence, (node, event));
    }

    /// A message; most are quick, some slow, some lost.
    fn send(&mut self, from: usize, to: usize, event: Event) {
        let apart = self.apart(from, to);
        let mut delay = match self.below(50) {
            0 => self.below(1200 * MS),
            1 => return,
            _ => self.below(4 * MS),
        };
        // An answer that lies somewhere, longer than a lease: a cut does not take it back.
        if matches!(event, Event::Granted(_)) && self.below(10) == 0 {
            delay = self.below(3 * SECONDS);
        }
        if !apart || from == to {
            self.at(delay, to, event);
        }
    }

    fn apart(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&a) != self.cut.contains(&b)
    }

    fn local(&self, i: usize) -> u64 {
        self.nodes[i].offset + self.now / 1000 * self.nodes[i].rate
    }

    fn fail(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Whether the node reaches most of the members.
    fn reaches_most(&self, i: usize) -> bool {
        2 * self.beside(i).len() > self.truth.members().len()
    }

    /// Members that the node reaches, itself included if it is one.
    fn beside(&self, i: usize) -> Vec<usize> {
        let members = self.truth.members().keys().map(|id| *id as usize);
        let reached = |j: &usize| !self.apart(i, *j) && self.nodes[*j].down <= self.now;
        members.filter(reached).collect()
    }

    /// Some majority that the node belongs to. Called where it reaches one.
    fn majority(&self, i: usize) -> Vec<usize> {
        let mut all = self.beside(i);
        all.retain(|j| *j != i);
        while 2 * (all.len() + 1) > self.truth.members().len() + 2 {
            let slow = all.iter().position(|j| *j == self.slow);
            all.remove(slow.unwrap_or_else(|| self.below(all.len() as u64) as usize));
        }
        all.push(i);
        all
    }

    fn commit(&mut self, command: Command) {
        match (self.truth.apply(&command), &command) {
            (Err(_), _) => self.report.refused += 1,
            (Ok(()), Command::Name { term, lost, .. }) => {
                self.told.extend(lost.map(|within| (*term, within)));
            }
            _ => {}
        }
        if let (Command::Name { .. } | Command::HandOver { .. }, Some(node)) =
            (&command, self.truth.leader())
            && self.truth.members()[&node].kind == Kind::Site
            && !self.truth.policies().sites_may_lead
        {
            self.fail(format!(
                "site {node} leads, and it was not said that it may"
            ));
        }
        self.report.degraded += usize::from(matches!(command, Command::Degrade { .. }));
        self.report.left += usize::from(matches!(command, Command::Leave { .. }));
        self.entries.push(command);
        let index = self.entries.len();
        for i in 0..self.nodes.len() {
            let late = match self.below(10) {
                0 => self.below(600 * MS),
                _ => self.below(5 * MS),
            };
            if !self.apart(self.elected, i) {
                self.at(late, i, Event::Learn(index));
            }
        }
    }

    fn run(mut self, until: u64) -> Result<Report, String> {
        while let Some(Reverse((time, key))) = self.queue.pop() {
            if time > until {
                break;
            }
            self.now = time;
            let (i, event) = self.events.remove(&key).expect("each is queued once");
            let node = &self.nodes[i];
            let own = matches!(
                event,
                Event::Tick | Event::Write | Event::Read | Event::Learn(_)
            );
            if matches!(event, Event::Chaos) {
                self.chaos();
            } else if node.down > time {
                // Messages are lost; what the node does by itself comes after its start.
                if own {
                    let after = node.down - time;
                    self.at(after, i, event);
                }
            } else if node.paused > time {
                // Its connections have broken by the end of the pause: only what came at its beginning is left, and is taken up in any order.
                if !own && time > node.stopped + 20 * MS {
                    continue;
                }
                let after = node.paused - time + self.below(400 * MS);
                self.at(after, i, event);
            } else {
                self.handle(i, event);
            }
            if let Some(what) = self.wrong {
                return Err(format!("at {} ms: {what}", time / MS));
            }
        }
        self.report.acknowledged = self.acknowledged.len();
        Ok(self.report)
    }

    fn handle(&mut self, i: usize, event: Event) {
        let now = self.local(i);
        match event {
            Event::Tick => {
                self.tick(i);
                self.at(100 * MS, i, Event::Tick);
            }
            Event::Write => {
                if self.nodes[i].primary.is_some() {
                    let (term, id) = (self.nodes[i].term, self.next_write);
                    self.next_write += 1;
                    self.nodes[i].log.push((term, id));
                    self.ship(i);
                    self.release(i);
                }
                let pause = 10 * MS + self.below(60 * MS);
                self.at(pause, i, Event::Write);
            }
            Event::Read => {
                self.read(i);
                let pause = self.below(40 * MS);
                self.at(pause, i, Event::Read);
            }
            Event::Learn(index) => self.learn(i, index),
            Event::Propose(election, command) => {
                let holds = election.is_none_or(|e| e == self.election);
                if holds && self.reaches_most(self.elected) {
                    for j in self.majority(self.elected) {
                        self.nodes[j].took_part = self.local(j);
                    }
                    self.commit(command);
                }
            }
            Event::Elected(election, before) => {
                let elected = Failover::elected(terms(&self.nodes[i].catalogue), now, before);
                self.nodes[i].control = Some((election, elected));
            }
            Event::Request(request) => {
                let node = &mut self.nodes[i];
                let Some((election, control)) = &mut node.control else {
                    return;
                };
                let election = *election;
                node.took_part = now;
                if control.requested(&node.catalogue, request, now) {
                    let round = self.below(5 * MS);
                    self.at(round, i, Event::Confirm(election, request));
                }
            }
            Event::Confirm(election, request) => {
                if election != self.election || !self.reaches_most(i) {
                    return;
                }
                for j in self.majority(i) {
                    self.nodes[j].took_part = self.local(j);
                }
                // A confirmed leader has applied all that was agreed on before.
                self.learn(i, self.entries.len());
                if Failover::still_leads(&self.nodes[i].catalogue, request) {
                    self.send(i, request.holder as usize, Event::Granted(request));
                }
            }
            Event::Granted(request) => {
                if let Some(p) = &mut self.nodes[i].primary {
                    p.holder.granted(request, now);
                }
                self.release(i);
            }
            Event::Ask(term, from) => self.asked(i, term, from),
            Event::Answer(term, from, answer) => {
                if let Some((_, control)) = &mut self.nodes[i].control {
                    control.answered(term, from as u64, answer);
                }
                self.decide(i);
            }
            Event::Append(term, from, log, said) => self.append(i, term, from, log, said),
            Event::Acked(term, from, len) => {
                if let Some(p) = self.nodes[i].primary.as_mut().filter(|p| p.term == term) {
                    let known = p.acked.entry(from as u64).or_default();
                    *known = (*known).max(len);
                }
                self.release(i);
            }
            Event::Chaos => unreachable!("chaos belongs to no node"),
        }
    }

    fn asked(&mut self, i: usize, term: u64, from: usize) {
        let now = self.local(i);
        let node = &mut self.nodes[i];
        let Some(standing) = node.standing.asked(term) else {
            let later = Answer::Later(node.standing.promised());
            return self.send(i, from, Event::Answer(term, i, later));
        };
        node.standing = standing;
        if node.primary.as_ref().is_some_and(|p| p.term < term) {
            node.primary = None;
        }
        let end = End {
            term: node.term,
            position: node.log.len() as u64,
        };
        let age = node.fresh.map(|fresh| now.saturating_sub(fresh) / MS + 1);
        self.asked_at.entry(term).or_insert(self.now);
        let failed = node.failed;
        let promised = Answer::Promised(Testimony { end, age, failed });
        self.send(i, from, Event::Answer(term, i, promised));
    }

    fn append(&mut self, i: usize, term: u64, from: usize, log: Log, said: (usize, u64)) {
        let now = self.local(i);
        let node = &mut self.nodes[i];
        if !node.standing.takes(term) {
            return;
        }
        node.standing = node.standing.asked(term).expect("it takes that term");
        if node.primary.as_ref().is_some_and(|p| p.term < term) {
            node.primary = None;
        }
        // Within one term the leader's log only grows; an older message says nothing new.
        if node.term < term || node.log.len() < log.len() {
            // What it knows of another leader says nothing of this one.
            if node.term < term {
                node.fresh = None;
            }
            node.log = log;
            node.term = term;
        }
        let len = node.log.len();
        let (acknowledged, sent) = said;
        let took = now as i64 - sent as i64;
        node.took = (node.took.0 + 1, node.took.1.min(took));
        // Of fewer messages each may have been late.
        if len >= acknowledged && node.took.0 >= 8 {
            let here = sent.saturating_add_signed(node.took.1);
            node.fresh = node.fresh.max(Some(here));
        }
        self.send(i, from, Event::Acked(term, i, len));
    }

    fn learn(&mut self, i: usize, index: usize) {
        let node = &mut self.nodes[i];
        while node.applied < index {
            // Refused here as it is in the truth.
            let _ = node.catalogue.apply(&self.entries[node.applied]);
            node.applied += 1;
        }
        self.lead(i);
        self.release(i);
    }

    /// Begins to lead, or stops to, as the catalogue says.
    fn lead(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        let Some(Phase::Leading { node: leader, term }) = node.catalogue.phase() else {
            return;
        };
        if leader as usize != i {
            if node.primary.as_ref().is_some_and(|p| p.term < term) {
                node.primary = None;
            }
            return;
        }
        let leads = node.primary.as_ref().is_some_and(|p| p.term >= term);
        if leads || !node.standing.takes(term) {
            return;
        }
        if node.unable > self.now {
            node.failed += 1;
            return;
        }
        if node.failed > 0 {
            node.failed = 0;
            self.report.able_again += 1;
        }
        node.standing = node.standing.asked(term).expect("it takes that term");
        // After a crash it may lead a term again that is long over, without a lease.
        let begins = node.term < term;
        if begins {
            node.log.push((term, 0));
            node.term = term;
        }
        let start = node.log.iter().rposition(|r| *r == (term, 0));
        node.primary = Some(Primary {
            term,
            holder: holder(&node.catalogue, i, term, node.life),
            waiting: Waiting::new(term),
            start: start.expect("the term begins in its leader's log") + 1,
            acked: BTreeMap::new(),
            acknowledged: 0,
            rule: (0, vec![]),
            ruled: node.log.len(),
            looked: 0,
        });
        node.life += 1;
        let has: BTreeSet<u64> = self.nodes[i].log.iter().map(|r| r.1).collect();
        let lost: Vec<u64> = self.acknowledged.difference(&has).copied().collect();
        // A term that is over by now comes to nothing: enough copies take its records no more.
        let counts = begins && self.truth.phase().is_some_and(|p| p.term() == term);
        // A clock that is slow by a twentieth says less than it was. It has lost as much since the quickest message of before, which may be some seconds old.
        let within = |(term, ms): &(u64, u64)| (self.asked_at[term], ms * MS / 20 * 21 + 200 * MS);
        let may_be_lost = |id: &u64| {
            let mut told = self.told.iter().map(within);
            told.any(|(asked, time)| self.acknowledged_at[id] + time >= asked)
        };
        if let Some(lost) = lost.iter().find(|id| counts && !may_be_lost(id)) {
            let what = format!("node {i} leads term {term} without {lost}, which was acknowledged");
            self.fail(what);
        } else if counts {
            self.told.clear();
            self.report.lost += lost.len();
            lost.iter().for_each(|id| _ = self.acknowledged.remove(id));
        }
        if self.leaders.insert(term, i).is_some_and(|other| other != i) {
            self.fail(format!("two leaders of term {term}"));
        }
        let unable = |n: &Node| n.failed > 0;
        self.report.passed_over += usize::from(self.nodes.iter().any(unable));
        self.report.failovers += usize::from(term > 1);
        let kind = self.truth.members().get(&(i as u64)).map(|m| m.kind);
        self.report.by_sites += usize::from(kind == Some(Kind::Site));
        self.report.overtaken += usize::from(term >> 20 > 0);
    }

    /// Sends the log to the other copies.
    fn ship(&mut self, i: usize) {
        let node = &self.nodes[i];
        let Some(p) = &node.primary else { return };
        // A site follows, whether it counts or not.
        let copies = node.catalogue.members().iter();
        let copies = copies.filter(|(id, m)| m.has_copy() && **id != i as u64);
        let copies: Vec<u64> = copies.map(|(id, _)| *id).collect();
        let (term, log) = (p.term, node.log.clone());
        // Clocks of the civil time differ, by up to half a second.
        let said = (p.acknowledged, self.now + i as u64 % 4 * 150 * MS);
        for copy in copies {
            self.send(i, copy as usize, Event::Append(term, i, log.clone(), said));
        }
    }

    /// Acknowledges what enough replicas hold.
    fn release(&mut self, i: usize) {
        let now = self.local(i);
        let node = &mut self.nodes[i];
        let Some(p) = &mut node.primary else { return };
        if !p.holder.holds(now) || !node.standing.takes(p.term) {
            return;
        }
        let wanted = p.follow_rule(&node.catalogue, i, now);
        let reach = reach(&node.catalogue, i, p, wanted, node.log.len());
        for (_, id) in &node.log[p.acknowledged.min(reach)..reach] {
            if *id > 0 && self.acknowledged.insert(*id) {
                self.acknowledged_at.insert(*id, self.now);
            }
        }
        p.acknowledged = p.acknowledged.max(reach);
    }

    fn read(&mut self, i: usize) {
        let now = self.local(i);
        let node = &self.nodes[i];
        let Some(p) = &node.primary else { return };
        if !p.holder.holds(now) || !node.standing.takes(p.term) {
            return;
        }
        self.report.reads += 1;
        let Some(newest) = self.acknowledged.last() else {
            return;
        };
        // Ids ascend in the order of all writes, and so in each history: the newest acknowledged one stands near the end.
        if !node.log.iter().rev().any(|r| r.1 == *newest) {
            self.fail(format!("a strong read at node {i} does not show {newest}"));
        }
    }

    fn tick(&mut self, i: usize) {
        let now = self.local(i);
        if self.nodes[i].applied < self.entries.len() {
            let all = Event::Learn(self.entries.len());
            self.send(self.elected, i, all);
        }
        self.lead(i);
        self.ship(i);
        let node = &mut self.nodes[i];
        if let Some(p) = &mut node.primary {
            p.holder.agree(terms(&node.catalogue));
            let waited = p.follow_rule(&node.catalogue, i, now);
            let before = std::mem::replace(&mut p.looked, p.acknowledged);
            let holding = |all: usize| {
                let hold = |c: &u64| p.acked.get(c).is_some_and(|len| *len >= all);
                node.catalogue.replicas_of(i as u64).filter(hold).count()
            };
            let seen = Seen {
                waits: p.acknowledged < node.log.len(),
                hold_all: holding(p.ruled.max(p.start)),
                keep_up: holding(before.max(1)),
                waited,
            };
            let proposal = p.waiting.tick(&node.catalogue, seen, now);
            let request = p.holder.request(now);
            let elected = self.elected;
            self.send(i, elected, Event::Request(request));
            if let Some(command) = proposal {
                self.send(i, elected, Event::Propose(None, command));
            }
        }
        self.give_up(i);
        if self.below(80) == 0 {
            self.hand_over(i);
        }
        self.decide(i);
    }

    /// The leader by the catalogue that has heard of a later term asks to be asked.
    fn give_up(&mut self, i: usize) {
        let node = &self.nodes[i];
        if let Some(Phase::Leading { node: leader, term }) = node.catalogue.phase()
            && leader as usize == i
            && node.standing.promised() > term
        {
            let (after, above) = (term, 0);
            let command = Command::Begin { after, above };
            self.send(i, self.elected, Event::Propose(None, command));
        }
    }

    /// The primary makes way for a replica that has all of its log, and proposes that one.
    fn hand_over(&mut self, i: usize) {
        let behind_too = env::fault::planted("hand_over.heir_behind");
        let forgets = env::fault::planted("hand_over.not_promised");
        let node = &mut self.nodes[i];
        let Some(p) = &node.primary else { return };
        let (term, len) = (p.term, node.log.len());
        let has_all = |c: &u64| behind_too || p.acked.get(c).is_some_and(|acked| *acked >= len);
        let Some(to) = node.catalogue.replicas_of(i as u64).find(has_all) else {
            return;
        };
        if !forgets {
            node.standing = node.standing.asked(term + 1).expect("a later term");
            node.primary = None;
        }
        self.report.handed_over += 1;
        let command = Command::HandOver { term, to };
        self.send(i, self.elected, Event::Propose(None, command));
    }

    fn decide(&mut self, i: usize) {
        let now = self.local(i);
        let node = &mut self.nodes[i];
        let Some((election, control)) = &mut node.control else {
            return;
        };
        let election = *election;
        for action in control.tick(&node.catalogue, now) {
            match action {
                Action::Propose(command) => {
                    self.send(i, i, Event::Propose(Some(election), command));
                }
                Action::Ask { node, term } => self.send(i, node as usize, Event::Ask(term, i)),
            }
        }
    }

    /// This node leads the consensus from now on. Those that vote for it say when they took part in a lease last.
    fn elect(&mut self, i: usize) {
        let mut ballots = Ballots::new(self.nodes[i].took_part);
        for j in self.majority(i).into_iter().filter(|j| *j != i) {
            let age = self.local(j).saturating_sub(self.nodes[j].took_part);
            ballots.vote(self.local(i), age);
        }
        let before = Before {
            granted: ballots.latest(),
            replaced: Some(self.elected as u64),
        };
        self.election += 1;
        self.elected = i;
        let election = self.election;
        self.at(1, i, Event::Elected(election, before));
    }

    /// Of four members one is taken out; to three one is added, whose copy is empty.
    fn change_members(&mut self, i: usize) {
        let members = self.truth.members();
        let command = match members.get(&(i as u64)) {
            Some(member) if members.len() > 3 && member.has_copy() && i != self.elected => {
                Command::Leave { node: i as u64 }
            }
            _ if members.len() < 4 && self.nodes.len() < 12 => {
                let far = self.below(4) == 0;
                let member = self.add(if far { Kind::Site } else { Kind::Server });
                let node = self.nodes.len() as u64 - 1;
                Command::Join { node, member }
            }
            _ => return,
        };
        let (elected, election) = (self.elected, self.election);
        self.send(elected, elected, Event::Propose(Some(election), command));
    }

    /// Some setting becomes another one. A node proposes that by what it knows of them.
    fn change_settings(&mut self, i: usize) {
        let catalogue = &self.nodes[i].catalogue;
        if catalogue.phase().is_none() {
            return;
        }
        let before = catalogue.policies().clone();
        let mut policies = before.clone();
        let sites = catalogue.members().values().any(|m| m.kind == Kind::Site);
        if sites && self.below(2) == 0 {
            policies.sites_may_lead = !policies.sites_may_lead;
        }
        match self.below(3) {
            // More could not be had, where a copy is lost.
            0 if !self.lossy => {
                let most = self.truth.replicas().min(2) as u64;
                let n = self.below(most + 1) as usize;
                policies.synchronous_replicas = (n > 0).then_some(n);
            }
            1 if !self.lossy => policies.degrade_after = (self.below(2) == 0).then_some(400),
            _ => policies.maintenance = !policies.maintenance && self.below(2) == 0,
        }
        if policies != before {
            self.report.set += 1;
            let before = Some(before);
            let command = Command::Set { policies, before };
            self.send(i, self.elected, Event::Propose(None, command));
        }
    }

    /// Something goes wrong; most of it heals.
    fn chaos(&mut self) {
        let i = self.below(self.nodes.len() as u64) as usize;
        if self.below(8) == 0 {
            self.change_settings(i);
        }
        match self.below(12) {
            11 if self.below(2) == 0 => {
                // Of several, so that one that is named is among them.
                for node in &mut self.nodes {
                    if self.dice.next_u64().is_multiple_of(2) {
                        node.unable = self.now + self.dice.next_u64() % (12 * SECONDS);
                    }
                }
            }
            0..=2 => {
                self.nodes[i].stopped = self.now;
                self.nodes[i].paused = self.now + self.below(6 * SECONDS);
            }
            3..=5 => {
                let down = self.now + self.below(5 * SECONDS);
                let node = &mut self.nodes[i];
                (node.down, node.primary, node.control) = (down, None, None);
                (node.fresh, node.took) = (None, (0, i64::MAX));
                node.failed = 0;
                // What it took part in before is forgotten: it counts from its start.
                node.took_part = node.offset + (down / 1000 + 1) * node.rate;
            }
            6..=8 => {
                self.cut = match self.cut.is_empty() {
                    true => BTreeSet::from([i]),
                    false => BTreeSet::new(),
                }
            }
            9 if self.nodes[i].catalogue.phase().is_some() => {
                // A node that is no member has drawn a term by hand, far above the members' terms, and tells of it.
                let node = &mut self.nodes[i];
                let term = node.standing.promised() + (1 << 20);
                node.standing = node.standing.asked(term).expect("a later term");
                node.primary = None;
            }
            10 => self.change_members(i),
            _ => self.slow = i,
        }
        // The consensus has another leader. The one before hears of it later, or never. One that was slow stands first, as it misses the leader first.
        let stays = self.reaches_most(self.elected) && self.nodes[self.elected].control.is_some();
        let i = match !stays && self.below(2) == 0 {
            true => self.slow,
            false => i,
        };
        let is_member = self.truth.members().contains_key(&(i as u64));
        if is_member
            && (!stays || self.below(4) == 0)
            && self.reaches_most(i)
            && self.nodes[i].down <= self.now
        {
            self.elect(i);
        }
        let most = match self.reaches_most(self.elected) {
            true => 1500 * MS,
            false => 500 * MS,
        };
        let next = 200 * MS + self.below(most);
        self.at(next, 0, Event::Chaos);
    }
}

/// Of the primary of this term.
fn holder(catalogue: &Catalogue, i: usize, term: u64, life: u64) -> Holder {
    let mut holder = Holder::new(Terms::default(), i as u64, term, life);
    holder.agree(terms(catalogue));
    holder
}

/// How long leases are by this catalogue.
fn terms(catalogue: &Catalogue) -> Terms {
    Terms::default().agreed(catalogue.policies().lease)
}

impl Primary {
    /// Notes which rule holds now: how many copies a commit waits for.
    fn follow_rule(&mut self, catalogue: &Catalogue, i: usize, now: u64) -> usize {
        let wanted = self.waiting.wanted(catalogue, now);
        let rule = (wanted, catalogue.replicas_of(i as u64).collect());
        if std::mem::replace(&mut self.rule, rule) != self.rule {
            self.ruled = self.ruled.max(self.acknowledged);
        }
        wanted
    }
}

/// How far the log may be acknowledged with so many replicas.
fn reach(catalogue: &Catalogue, i: usize, p: &Primary, wanted: usize, len: usize) -> usize {
    let copies = catalogue.replicas_of(i as u64);
    let mut acked: Vec<usize> = copies
        .map(|c| p.acked.get(&c).copied().unwrap_or(0))
        .collect();
    acked.sort_unstable_by_key(|len| Reverse(*len));
    match wanted {
        0 => len,
        n => acked.get(n - 1).copied().unwrap_or(0).min(len),
    }
}

fn run(seed: u64) -> Result<Report, String> {
    World::new(seed, false).run(40 * SECONDS)
}

/// Commits wait for no replica.
fn run_lossy(seed: u64) -> Result<Report, String> {
    World::new(seed, true).run(40 * SECONDS)
}

/// One test, as planted faults belong to the process.
#[test]
fn worlds_lose_nothing_and_planted_faults_are_found() {
    let mut sum = Report::default();
    // More seeds by hand: CANON_SEEDS=20000.
    let seeds = std::env::var("CANON_SEEDS").map_or(1000, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        let report = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        sum.acknowledged += report.acknowledged;
        sum.reads += report.reads;
        sum.failovers += report.failovers;
        sum.degraded += report.degraded;
        sum.handed_over += report.handed_over;
        sum.overtaken += report.overtaken;
        sum.left += report.left;
        sum.passed_over += report.passed_over;
        sum.able_again += report.able_again;
        sum.set += report.set;
        sum.by_sites += report.by_sites;
    }
    println!("{sum:?}");
    assert!(sum.acknowledged > 50_000 && sum.reads > 50_000, "{sum:?}");
    assert!(sum.failovers > 500 && sum.degraded > 20, "{sum:?}");
    assert!(sum.handed_over > 500 && sum.overtaken > 500, "{sum:?}");
    assert!(sum.left > 200 && sum.set > 1000, "{sum:?}");
    assert!(sum.passed_over > 20 && sum.able_again > 20, "{sum:?}");
    assert!(sum.by_sites > 20, "{sum:?}");
    assert_eq!(sum.lost, 0, "{sum:?}");
    let mut lossy = Report::default();
    for seed in 0..seeds {
        let report = run_lossy(seed).unwrap_or_else(|what| panic!("lossy, seed {seed}: {what}"));
        lossy.failovers += report.failovers;
        lossy.lost += report.lost;
    }
    println!("lossy: {lossy:?}");
    assert!(lossy.failovers > 200 && lossy.lost > 100, "{lossy:?}");
    #[cfg(feature = "faults")]
    for fault in [
        "lease.from_answer",
        "lease.not_waited_out",
        "lease.own_silence",
        "leave.stays_promised",
        "failover.any_replica",
        "failover.unable_counts",
        "failover.site_unasked",
        "sites.stay_promised",
        "degrade.before_raft",
        "hand_over.heir_behind",
        "hand_over.not_promised",
    ] {
        env::fault::plant(fault, true);
        let found = (0..seeds).find_map(|seed| run(seed).err().map(|what| (seed, what)));
        env::fault::plant(fault, false);
        let (seed, what) = found.unwrap_or_else(|| panic!("{fault} is not found"));
        println!("{fault}: seed {seed}: {what}");
    }
    // Primaries of a build that knows leases of the usual length only. None is granted to them where the members have agreed on a shorter one.
    #[cfg(feature = "faults")]
    {
        env::fault::plant("lease.unagreed", true);
        for seed in 0..seeds / 4 {
            run(seed).unwrap_or_else(|what| panic!("lease.unagreed, seed {seed}: {what}"));
        }
        let fault = "lease.any_length";
        env::fault::plant(fault, true);
        let found = (0..seeds).find_map(|seed| run(seed).err().map(|what| (seed, what)));
        env::fault::plant(fault, false);
        env::fault::plant("lease.unagreed", false);
        let (seed, what) = found.unwrap_or_else(|| panic!("{fault} is not found"));
        println!("{fault}: seed {seed}: {what}");
    }
    #[cfg(feature = "faults")]
    {
        let fault = "failover.any_loss";
        env::fault::plant(fault, true);
        let found = (0..seeds).find_map(|seed| run_lossy(seed).err().map(|what| (seed, what)));
        env::fault::plant(fault, false);
        let (seed, what) = found.unwrap_or_else(|| panic!("{fault} is not found"));
        println!("{fault}: seed {seed}: {what}");
    }
}
