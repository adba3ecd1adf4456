//! A cluster of members under a seed: it is founded, everything breaks, everything is mended.
//!
//! ```text
//! found, join ──▶ 40 s in which machines stand still, lose their power, are cut off, join and leave ──▶ mended ──▶ whole again in time
//! ```
//! **Whole again** means: all members have the same catalogue at the same index, and those vote that the catalogue says. A primary acknowledges new writes, and its log has all
//! that was ever acknowledged. A leader of the consensus is part of that. It has [`WHOLE`] to come about.
//!
//! Left out on purpose: disks that fail while the power is on, processes that start again in their process, and a member that leaves and takes with it a vote that is
//! needed.

use super::executor::{MachineClock, OUTSIDE};
use super::network::Road;
use super::report::Report;
use super::server::{Held, serve};
use super::world::{Links, Node, World, primary_of};
use cluster::time::sleep;
use cluster::{Catalogue, Command, Kind, Member, NodeId, Phase, RunningMember, Terms, Timing};
use env::{Env, MemDisk, OsSpawn, PowerCut, SeededRandom};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;
const SECONDS: u64 = 1000 * MS;

/// How long things break.
const BREAKS: u64 = 40 * SECONDS;
/// How long a cluster may take to be whole after that: a silence, an election, a lease, a choice, and voters that are agreed on, some of them twice.
const WHOLE: u64 = 20 * SECONDS;
/// How long it may take to come up at the beginning.
const UP: u64 = 30 * SECONDS;
/// The most members at once, and the most machines in a run.
const MOST: (usize, usize) = (5, 9);

impl World {
    /// A new machine, without power.
    fn add(&self, kind: Kind) -> NodeId {
        let (rate, offset) = (955 + self.below(91), self.below(1000 * SECONDS));
        let id = self.executor.add_machine(rate, offset) as NodeId;
        let node = Node {
            id,
            kind,
            disk: MemDisk::new(),
            copy: Mutex::default(),
            running: Mutex::default(),
            ear: Mutex::default(),
            power: Mutex::default(),
        };
        self.nodes.lock().insert(id, Arc::new(node));
        id
    }

    /// Its process starts.
    fn start(self: &Arc<World>, id: NodeId) {
        let node = self.node(id).expect("it was added");
        let life = {
            let mut power = node.power.lock();
            if power.0 {
                return;
            }
            *power = (true, power.1 + 1);
            power.1
        };
        self.note(&format!("n{id} starts"));
        let world = self.clone();
        self.executor.spawn_on(id as usize, async move {
            let clock = MachineClock {
                executor: world.executor.clone(),
                machine: id as usize,
            };
            let dice = SeededRandom::new(world.seed ^ (id << 32) ^ (life << 48));
            let env = Env {
                clock: Arc::new(clock),
                random: Arc::new(dice),
                disk: Arc::new(node.disk.clone()),
                spawn: Arc::new(OsSpawn),
            };
            let (road, held) = (
                Road {
                    me: id,
                    world: world.clone(),
                },
                Held {
                    world: world.clone(),
                    node: node.clone(),
                },
            );
            let timing = world.policies.lease.map_or(Timing::default(), |ms| {
                Timing::for_leases(Duration::from_millis(ms))
            });
            let opened = RunningMember::open(
                &env,
                Path::new("control"),
                id,
                Arc::new(road),
                Arc::new(held),
                timing,
                Terms::default(),
            );
            match opened.await {
                Ok(member) => {
                    *node.ear.lock() = Some(member.ear());
                    *node.running.lock() = Some(Arc::new(member));
                    if node.kind != Kind::Witness {
                        serve(world, node).await;
                    }
                }
                Err(e) => world
                    .rules
                    .lock()
                    .fail(format!("n{id} does not start: {e}")),
            }
        });
    }

    /// Its machine loses its power.
    fn stop(&self, id: NodeId, cut: PowerCut) {
        let node = self.node(id).expect("it was added");
        self.executor.kill(id as usize);
        let gone = (node.ear.lock().take(), node.running.lock().take());
        drop(gone);
        node.copy.lock().leads = None;
        node.power.lock().0 = false;
        node.disk.power_cut(cut);
        self.note(&format!("n{id} is down"));
    }

    /// Does this on the machine of a member that runs, until it says that it is done.
    async fn at_a_member(
        self: &Arc<World>,
        command: Command,
        is_done: impl Fn(&Catalogue) -> bool,
    ) {
        while !is_done(&self.newest()) {
            self.propose(command.clone());
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Some member that runs proposes this, once.
    fn propose(self: &Arc<World>, command: Command) {
        let nodes = self.nodes.lock();
        let founded = |n: &&Arc<Node>| {
            let member = n.member()?;
            let founded = member.consensus().catalogue().borrow().phase().is_some();
            founded.then_some((n.id, member))
        };
        let all: Vec<_> = nodes.values().filter_map(|n| founded(&n)).collect();
        drop(nodes);
        if all.is_empty() {
            return;
        }
        let (id, member) = all[self.below(all.len() as u64) as usize].clone();
        self.note(&format!("n{id} proposes {command:?}"));
        self.executor.spawn_on(id as usize, async move {
            _ = member.propose(command).await;
        });
    }

    /// The whole run, as a task of the hand that breaks things.
    async fn play(self: Arc<World>) {
        let four = self.below(2) == 0;
        let witness = !four && self.below(3) == 0;
        self.come_up(if four { 4 } else { 3 }, witness).await;
        let end = self.executor.time() + BREAKS;
        while self.executor.time() < end {
            self.break_something().await;
            let next = 200 * MS + self.below(1500 * MS);
            sleep(Duration::from_nanos(next)).await;
        }
        self.mend().await;
        *self.done.lock() = true;
    }

    /// A cluster of so many servers, the last one a witness where that is said.
    async fn come_up(self: &Arc<World>, members: u64, witness: bool) {
        let first = self.add(Kind::Server);
        self.start(first);
        let world = self.clone();
        self.executor.spawn_on(first as usize, async move {
            let node = world.node(first).expect("it was added");
            while node.member().is_none() {
                sleep(Duration::from_millis(1)).await;
            }
            let member = node.member().expect("waited for");
            let founded = member
                .consensus()
                .found(named(first, Kind::Server), 1)
                .await;
            founded.expect("a cluster of one");
        });
        let founded = |c: &Catalogue| c.phase().is_some();
        while !founded(&self.newest()) {
            sleep(Duration::from_millis(20)).await;
        }
        let policies = self.policies.clone();
        let set = Command::Set {
            policies: policies.clone(),
            before: None,
        };
        self.at_a_member(set, |c| *c.policies() == policies).await;
        for i in 2..=members {
            let kind = match witness && i == members {
                true => Kind::Witness,
                false => Kind::Server,
            };
            let id = self.add(kind);
            self.start(id);
            self.join(id).await;
        }
        self.becomes_whole(UP).await;
    }

    async fn join(self: &Arc<World>, id: NodeId) {
        let kind = self.node(id).expect("it was added").kind;
        let member = named(id, kind);
        let joins = Command::Join { node: id, member };
        self.at_a_member(joins, |c| c.members().contains_key(&id))
            .await;
    }

    /// One thing goes wrong.
    async fn break_something(self: &Arc<World>) {
        let ids: Vec<NodeId> = self.newest().members().keys().copied().collect();
        let (i, j) = (self.victim(&ids), self.victim(&ids));
        match self.below(24) {
            0..=4 => {
                let until = self.below(3 * SECONDS);
                self.note(&format!("n{i} stands still for {} ms", until / MS));
                self.executor
                    .pause(i as usize, self.executor.time() + until);
                self.report.lock().pauses += 1;
            }
            5..=9 => self.crash(&[i]),
            10..=13 => self.cut(
                ids.iter().copied().filter(|k| *k != i).map(|k| (i, k)),
                true,
            ),
            14 | 15 if i != j => self.cut([(i, j)].into_iter(), self.below(2) == 0),
            16 | 17 => {
                self.note("all cuts are mended");
                self.links.lock().cut.clear();
            }
            18 if self.below(3) == 0 => {
                self.report.lock().blackouts += 1;
                self.crash(&ids);
            }
            18..=20 => self.change_members(&ids).await,
            21 => self.change_settings(),
            22 => {
                let until = self.executor.time() + self.below(6 * SECONDS);
                self.note(&format!("no term begins at n{i} for a while"));
                let node = self.node(i).expect("a member");
                node.copy.lock().unable = until;
            }
            _ => {
                // A node that is no member has drawn a term by hand, far above the members' terms, and tells of it.
                let node = self.node(i).expect("a member");
                let mut copy = node.copy.lock();
                let hand = copy.standing.promised() + (1 << 20);
                copy.standing = copy.standing.asked(hand).expect("a later term");
                copy.leads = None;
                drop(copy);
                self.note(&format!("n{i} hears of term {hand}"));
            }
        }
    }

    /// The primary, the consensus leader, or any of these.
    fn victim(&self, ids: &[NodeId]) -> NodeId {
        let any = ids[self.below(ids.len() as u64) as usize];
        let one = match (self.below(3), self.newest().phase()) {
            (0, Some(Phase::Leading { node, .. })) => Some(node),
            (1, _) => self.consensus_leader(ids),
            _ => None,
        };
        one.unwrap_or(any)
    }

    fn consensus_leader(&self, ids: &[NodeId]) -> Option<NodeId> {
        let leads = |id: &NodeId| {
            let member = self.node(*id).and_then(|n| n.member());
            member.is_some_and(|m| m.consensus().won().is_some())
        };
        ids.iter().copied().find(leads)
    }

    /// These machines lose their power, and come back later.
    fn crash(self: &Arc<World>, ids: &[NodeId]) {
        let up: Vec<NodeId> = ids.iter().copied().filter(|id| self.is_up(*id)).collect();
        for id in up {
            let cut = match self.below(3) {
                0 => PowerCut::KeepAll,
                1 => PowerCut::LoseAll,
                _ => PowerCut::Random(self.below(u64::MAX)),
            };
            self.stop(id, cut);
            self.report.lock().crashes += 1;
            let back = Duration::from_nanos(self.below(5 * SECONDS));
            let world = self.clone();
            self.executor.spawn_on(OUTSIDE, async move {
                sleep(back).await;
                world.start_if_needed(id);
            });
        }
    }

    fn start_if_needed(self: &Arc<World>, id: NodeId) {
        if self.is_needed(id) {
            self.start(id);
        }
    }

    /// It is a member, or its vote is asked for still: a member that has left ends when the others vote without it.
    fn is_needed(&self, id: NodeId) -> bool {
        let newest = self.newest();
        let asks = |member: &NodeId| {
            let member = self.node(*member).and_then(|n| n.member());
            // One that is down may ask for it when it comes back.
            member.is_none_or(|m| m.consensus().voters().contains(&id))
        };
        newest.members().contains_key(&id) || newest.members().keys().any(asks)
    }

    fn cut(&self, ways: impl Iterator<Item = (NodeId, NodeId)>, both: bool) {
        let mut links = self.links.lock();
        // One at a time: a majority is there most of the time.
        links.cut.clear();
        for (from, to) in ways {
            links.cut.insert((from, to));
            if both {
                links.cut.insert((to, from));
            }
        }
        let line = format!("cut: {:?}", links.cut);
        drop(links);
        self.note(&line);
        self.report.lock().cuts += 1;
    }

    /// A member leaves, most often the one that leads the consensus; or another one comes. Sometimes both.
    async fn change_members(self: &Arc<World>, ids: &[NodeId]) {
        let leader = self.consensus_leader(ids);
        if ids.len() > 3 {
            let any = ids[self.below(ids.len() as u64) as usize];
            let node = leader.filter(|_| self.below(3) > 0).unwrap_or(any);
            self.leave(node, leader == Some(node)).await;
        }
        if self.newest().members().len() < MOST.0 && self.nodes.lock().len() < MOST.1 {
            let id = self.add(Kind::Server);
            self.start(id);
            let world = self.clone();
            self.executor.spawn_on(OUTSIDE, async move {
                world.join(id).await;
                world.report.lock().joined += 1;
            });
        }
    }

    /// The member is taken out, and its process ends some time after that.
    async fn leave(self: &Arc<World>, node: NodeId, leads: bool) {
        self.propose(Command::Leave { node });
        let is_member = || self.newest().members().contains_key(&node);
        for _ in 0..40 {
            if is_member() {
                sleep(Duration::from_millis(20)).await;
            }
        }
        // It was refused, or is lost.
        if is_member() {
            return;
        }
        let mut report = self.report.lock();
        report.left += 1;
        report.leaders_left += u64::from(leads);
        drop(report);
        self.note(&format!("n{node} has left"));
        let end = Duration::from_nanos(2 * SECONDS + self.below(4 * SECONDS));
        let world = self.clone();
        self.executor.spawn_on(OUTSIDE, async move {
            sleep(end).await;
            while world.is_needed(node) {
                sleep(Duration::from_millis(100)).await;
            }
            world.stop(node, PowerCut::KeepAll);
        });
    }

    fn change_settings(self: &Arc<World>) {
        let before = self.newest().policies().clone();
        let mut policies = before.clone();
        match self.below(3) {
            0 => policies.synchronous_replicas = (self.below(2) == 0).then_some(1),
            1 => policies.degrade_after = (self.below(2) == 0).then_some(400),
            _ => policies.maintenance = !policies.maintenance && self.below(2) == 0,
        }
        let before = Some(before);
        self.propose(Command::Set { policies, before });
    }

    /// Nothing breaks any more, and the cluster becomes whole in time.
    async fn mend(self: &Arc<World>) {
        self.note("mended");
        *self.links.lock() = Links {
            mended: true,
            ..Links::default()
        };
        let ids: Vec<NodeId> = self.nodes.lock().keys().copied().collect();
        for id in &ids {
            self.executor.go_on(*id as usize);
            self.node(*id).expect("it was added").copy.lock().unable = 0;
            self.start_if_needed(*id);
        }
        let from = self.executor.time();
        let world = self.clone();
        self.executor.spawn_on(OUTSIDE, async move {
            let mut policies = world.newest().policies().clone();
            policies.maintenance = false;
            let (set, before) = (policies.clone(), None);
            let set = Command::Set {
                policies: set,
                before,
            };
            world.at_a_member(set, |c| !c.policies().maintenance).await;
        });
        self.becomes_whole(WHOLE).await;
        let took = (self.executor.time() - from) / MS;
        let mut report = self.report.lock();
        report.whole_after = report.whole_after.max(took);
    }

    /// Waits until the cluster is whole. A rule is broken if that takes longer.
    async fn becomes_whole(&self, limit: u64) {
        let (from, before) = (self.executor.time(), self.rules.lock().acknowledged().0);
        loop {
            let Err(why) = self.is_whole(before) else {
                return;
            };
            if self.executor.time() - from > limit {
                let nodes = self.nodes.lock().clone();
                let views: Vec<String> = nodes.iter().map(|(id, n)| view(*id, n)).collect();
                let views = views.join("\n");
                let what = format!("{} s after all was mended: {why}\n{views}", limit / SECONDS);
                return self.rules.lock().fail(what);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn is_whole(&self, before: usize) -> Result<(), String> {
        let (index, newest) = self.rules.lock().newest();
        let Some(Phase::Leading { node: leader, term }) = newest.phase() else {
            return Err(format!("no primary is named: {newest:?}"));
        };
        let mut leads = 0;
        for id in newest.members().keys() {
            let member = self.node(*id).and_then(|n| n.member());
            let member = member.ok_or_else(|| format!("n{id} is not there"))?;
            let consensus = member.consensus();
            let (at, catalogue) = consensus.applied();
            if at != index || catalogue != newest {
                return Err(format!("n{id} is at index {at} of {index}"));
            }
            let votes = newest.voters(&consensus.voters());
            if consensus.voters() != votes || consensus.is_changing_voters() {
                return Err(format!("n{id} knows the voters {:?}", consensus.voters()));
            }
            leads += usize::from(consensus.won().is_some());
        }
        if leads != 1 {
            return Err(format!("{leads} members lead the consensus"));
        }
        let primary = self.node(leader).expect("a member");
        let holds = primary.member().and_then(|m| primary_of(&primary, &m));
        let (count, of) = self.rules.lock().acknowledged();
        if holds != Some(term) || of != term || count <= before {
            return Err(format!(
                "n{leader} acknowledges nothing new in term {term}: it holds the lease of {holds:?}, the last one is of term {of}; {newest:?}"
            ));
        }
        let log = primary.copy.lock().log.clone();
        self.rules.lock().has_all(leader, term, &log);
        Ok(())
    }

    /// A run by this task, until a rule is broken or all is done.
    fn run(self: &Arc<World>, play: impl Future<Output = ()> + Send + 'static) -> Report {
        let entered = cluster::tasks::enter(self.executor.clone());
        self.executor.spawn_on(OUTSIDE, play);
        let limit = BREAKS + UP + 2 * WHOLE;
        self.executor
            .run(limit, |machine| self.look(machine) || *self.done.lock());
        let broken = self.rules.lock().broken().cloned();
        let mut report = self.report.lock().clone();
        let done = *self.done.lock();
        report.seeds = 1;
        (report.trace, report.steps) = self.executor.trace();
        let rules = self.rules.lock();
        report.acknowledged = rules.acknowledged().0;
        (report.elections, report.terms) = rules.terms();
        report.degraded = rules.degraded();
        drop(rules);
        self.end();
        drop(entered);
        if let Some(what) = broken {
            panic!("{what}");
        }
        assert!(done, "the run does not come to its end");
        report
    }

    /// Nothing holds this world any more.
    fn end(&self) {
        self.executor.clear();
        let nodes = std::mem::take(&mut *self.nodes.lock());
        for node in nodes.values() {
            drop((node.ear.lock().take(), node.running.lock().take()));
        }
        self.executor.clear();
    }

    /// The run of a seed.
    pub fn run_seed(self: &Arc<World>) -> Report {
        self.run(self.clone().play())
    }

    /// The consensus leader is taken out, and just after that another member comes.
    pub fn run_leader_leaves(self: &Arc<World>) -> Report {
        let world = self.clone();
        self.run(async move {
            world.links.lock().mended = true;
            world.come_up(4, false).await;
            let leader = world.leader_beside_primary().await;
            world.leave(leader, true).await;
            let ids: BTreeSet<NodeId> = world.newest().members().keys().copied().collect();
            assert!(!ids.contains(&leader), "it has left");
            let id = world.add(Kind::Server);
            world.start(id);
            world.join(id).await;
            world.becomes_whole(WHOLE).await;
            *world.done.lock() = true;
        })
    }

    /// The consensus leader, as soon as it is another member than the primary: the primary could not leave.
    async fn leader_beside_primary(self: &Arc<World>) -> NodeId {
        loop {
            self.becomes_whole(WHOLE).await;
            let newest = self.newest();
            let ids: Vec<NodeId> = newest.members().keys().copied().collect();
            let leader = self.consensus_leader(&ids);
            let leader = leader.expect("a whole cluster has one");
            if !matches!(newest.phase(), Some(Phase::Leading { node, .. }) if node == leader) {
                return leader;
            }
            self.stop(leader, PowerCut::LoseAll);
            sleep(Duration::from_secs(4)).await;
            self.start(leader);
        }
    }
}

/// What this node knows of the consensus, for a report.
fn view(id: NodeId, node: &Node) -> String {
    let Some(member) = node.member() else {
        return format!("n{id} is down or gone");
    };
    let consensus = member.consensus();
    let (at, won, voters) = (consensus.applied().0, consensus.won(), consensus.voters());
    let leader = consensus.leader();
    format!("n{id}: applied {at}, follows {leader:?}, won {won:?}, voters {voters:?}")
}

/// A member of this number.
fn named(id: NodeId, kind: Kind) -> Member {
    Member {
        name: format!("n{id}"),
        address: format!("n{id}:5433"),
        kind,
        level: cluster::question::LEVEL,
    }
}
