//! The machines of a run, and what is between them.
//!
//! Left out on purpose: what happens to them ([`super::play`]).

use super::copy::Copy;
use super::executor::Executor;
use super::report::Report;
use super::rules::Rules;
use cluster::member::Ear;
use cluster::{Catalogue, Kind, NodeId, Policies, RunningMember};
use env::MemDisk;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One machine.
pub struct Node {
    pub id: NodeId,
    pub kind: Kind,
    pub disk: MemDisk,
    pub copy: Mutex<Copy>,
    pub running: Mutex<Option<Arc<RunningMember>>>,
    pub ear: Mutex<Option<Ear>>,
    /// Whether it has power, and how often it was started.
    pub power: Mutex<(bool, u64)>,
}

impl Node {
    /// The member, while its process lives.
    pub fn member(&self) -> Option<Arc<RunningMember>> {
        self.running.lock().clone()
    }
}

/// What is cut, and how bad the network is.
#[derive(Default)]
pub struct Links {
    /// Nothing goes from the first to the second.
    pub cut: BTreeSet<(NodeId, NodeId)>,
    /// Nothing is lost or slow any more.
    pub mended: bool,
}

/// The term that this node leads and holds a lease for.
pub fn primary_of(node: &Node, member: &RunningMember) -> Option<u64> {
    let copy = node.copy.lock();
    let term = copy.leads.as_ref()?.term;
    (copy.standing.takes(term) && member.may_acknowledge(term)).then_some(term)
}

/// See the head of the file.
pub struct World {
    pub seed: u64,
    pub executor: Arc<Executor>,
    pub nodes: Mutex<BTreeMap<NodeId, Arc<Node>>>,
    pub links: Mutex<Links>,
    pub rules: Mutex<Rules>,
    pub report: Mutex<Report>,
    pub policies: Policies,
    /// The run has come to its end, and all holds.
    pub done: Mutex<bool>,
}

impl World {
    /// Machines without power.
    pub fn new(seed: u64, loud: bool) -> Arc<World> {
        let executor = Arc::new(Executor::new(seed, loud));
        let one_of = |n| executor.below(n) == 0;
        let policies = Policies {
            degrade_after: one_of(2).then_some(400),
            lease: one_of(3).then_some(600),
            ..Policies::default()
        };
        Arc::new(World {
            seed,
            executor,
            nodes: Mutex::default(),
            links: Mutex::default(),
            rules: Mutex::default(),
            report: Mutex::default(),
            policies,
            done: Mutex::default(),
        })
    }

    pub fn node(&self, id: NodeId) -> Option<Arc<Node>> {
        self.nodes.lock().get(&id).cloned()
    }

    /// The way in to this node, while its process lives.
    pub fn ear(&self, id: NodeId) -> Option<Ear> {
        self.node(id)?.ear.lock().clone()
    }

    /// Whether its process lives.
    pub fn is_up(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|n| n.member().is_some())
    }

    /// Whether nothing breaks any more.
    pub fn is_mended(&self) -> bool {
        self.links.lock().mended
    }

    /// Primaries that may acknowledge now, by what they know.
    pub fn lease_holders(&self) -> Vec<(NodeId, u64)> {
        let nodes = self.nodes.lock();
        let primary = |n: &Arc<Node>| {
            let member = n.member()?;
            Some((n.id, primary_of(n, &member)?))
        };
        nodes.values().filter_map(primary).collect()
    }

    /// A random number below this one.
    pub fn below(&self, n: u64) -> u64 {
        self.executor.below(n)
    }

    /// Notes what has happened.
    pub fn note(&self, line: &str) {
        self.executor.note(line);
    }

    /// The newest catalogue that any member has.
    pub fn newest(&self) -> Catalogue {
        self.rules.lock().newest().1
    }

    /// Looks at all members after a step of this machine. Whether a rule is broken.
    pub fn look(&self, machine: usize) -> bool {
        let holders = self.lease_holders();
        let id = machine as NodeId;
        let member = self.node(id).and_then(|n| n.member());
        let mut rules = self.rules.lock();
        rules.hold_leases(&holders);
        if let Some(member) = member {
            let consensus = member.consensus();
            consensus
                .won()
                .into_iter()
                .for_each(|term| rules.wins(id, term));
            let (index, catalogue) = consensus.applied();
            rules.agrees(id, index, catalogue);
        }
        rules.broken().is_some()
    }

    /// The last lines of what has happened.
    pub fn last_lines(&self) -> String {
        self.executor.last_lines()
    }
}
