//! Which node a session goes to, and when it should go to another: events in, commands out.
//!
//! ```text
//! nodes: found ─▶ seen (role, term, how old) ◀─▶ down ─▶ forgotten (not configured, and the primary knows it no more)
//! a session may be at:  any             the primary, replicas that are fresh     (when there are none: replicas that are old)
//!                       primary         the primary: the one of the newest term
//!                       standby         replicas, the fresh ones first
//!                       prefer-standby  as standby, else as any
//! of those the one with the fewest sessions for its age, and among equals the one that was taken longest ago
//! ```
//! Fresh is a node that hears the primary of the newest term and is not old. A session is asked to move when its node is none of those any more,
//! or has clearly more sessions than another; it does so when it is between transactions. Where it may wait for ever, as at a replica that
//! goes on following a primary which leads no more, it is pulled away also from the middle of a read. A lost connection is noticed by the
//! session itself, which asks for a node again.
//!
//! Left out on purpose: weights of machines, and what a session does. Every node takes every statement, so a session with writes is as
//! well at a replica, which passes them on.

use std::collections::HashMap;
use std::time::Duration;

/// A place among the nodes.
pub type NodeId = usize;
pub type SessionId = i32;

/// What a client wants of its server: libpq's `target_session_attrs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attrs {
    #[default]
    Any,
    /// Also `read-write`.
    Primary,
    /// Also `read-only`.
    Standby,
    PreferStandby,
}

impl Attrs {
    pub fn parse(text: &str) -> Option<Attrs> {
        Some(match text.trim() {
            "any" => Attrs::Any,
            "read-write" | "primary" => Attrs::Primary,
            "read-only" | "standby" => Attrs::Standby,
            "prefer-standby" => Attrs::PreferStandby,
            _ => return None,
        })
    }
}

/// What a node said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub primary: bool,
    pub term: u64,
    /// How old what it shows is; at a replica `None`: it does not hear its primary.
    pub age: Option<Duration>,
}

/// A node, as the proxy knows it.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// HOST:PORT.
    pub address: String,
    /// Named by the configuration: never forgotten.
    pub configured: bool,
    pub seen: Option<Seen>,
    pub sessions: usize,
    /// It is not watched any more, and takes no sessions.
    pub forgotten: bool,
    /// Ticks since it was last seen, or named by a primary.
    unheard: u32,
    /// Ticks since it was fresh.
    stale: u32,
    taken: u64,
}

#[derive(Clone, Debug)]
pub enum Event {
    /// A node that is configured, or that the primary knows.
    Found {
        address: String,
        configured: bool,
    },
    Seen(NodeId, Seen),
    /// It does not answer.
    Down(NodeId),
    /// It has refused: it does not lead and is not fresh until it is asked again.
    Refused(NodeId),
    Opened {
        session: SessionId,
        node: NodeId,
        attrs: Attrs,
    },
    /// It was asked to move and had nowhere to go.
    Stayed(SessionId),
    Ended(SessionId),
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin to ask this node how it is.
    Watch(NodeId),
    /// Cease to.
    Forget(NodeId),
    /// The session should find another node when it can.
    Move(SessionId),
    /// Also in the middle of a read of which nothing has come, and where asked, of a transaction: what it waits for may never come there.
    Pull { session: SessionId, block: bool },
}

struct Placed {
    node: NodeId,
    attrs: Attrs,
    /// The tick when it was asked to move.
    asked: Option<u64>,
}

/// See the head of the file.
pub struct Router {
    pub nodes: Vec<NodeState>,
    sessions: HashMap<SessionId, Placed>,
    max_age: Duration,
    ticks: u64,
    taken: u64,
}

/// Ticks after which a node that has not been heard of is forgotten.
const FORGET: u32 = 50;
/// Ticks after which a session that was asked to move may be asked again.
const AGAIN: u64 = 25;
/// Ticks after which sessions are pulled away from a node that is old or does not answer.
const STALE: u32 = 10;
/// The same of one that follows a primary which leads no more: it may be told of the new one.
const OVER: u32 = 5;
/// What a node may have more than another before sessions move.
const SLACK: usize = 2;

impl Router {
    /// `max_age`: what a fresh replica shows is at most this old.
    pub fn new(max_age: Duration) -> Router {
        Router {
            nodes: Vec::new(),
            sessions: HashMap::new(),
            max_age,
            ticks: 0,
            taken: 0,
        }
    }

    pub fn handle(&mut self, event: Event) -> Vec<Command> {
        let mut commands = Vec::new();
        match event {
            Event::Found {
                address,
                configured,
            } => self.found(address, configured, &mut commands),
            Event::Seen(id, seen) => {
                let n = &mut self.nodes[id];
                n.seen = Some(seen);
                n.unheard = 0;
            }
            Event::Down(id) => self.nodes[id].seen = None,
            Event::Refused(id) => {
                if let Some(s) = &mut self.nodes[id].seen {
                    (s.primary, s.age) = (false, None);
                }
            }
            Event::Stayed(session) => {
                if let Some(p) = self.sessions.get_mut(&session) {
                    p.asked = None;
                }
            }
            Event::Opened {
                session,
                node,
                attrs,
            } => {
                self.leave(session);
                self.nodes[node].sessions += 1;
                let placed = Placed {
                    node,
                    attrs,
                    asked: None,
                };
                self.sessions.insert(session, placed);
            }
            Event::Ended(session) => self.leave(session),
            Event::Tick => self.tick(&mut commands),
        }
        commands
    }

    fn found(&mut self, address: String, configured: bool, commands: &mut Vec<Command>) {
        let known = self.nodes.iter().position(|n| n.address == address);
        let Some(id) = known else {
            self.nodes.push(NodeState {
                address,
                configured,
                seen: None,
                sessions: 0,
                forgotten: false,
                unheard: 0,
                stale: 0,
                taken: 0,
            });
            return commands.push(Command::Watch(self.nodes.len() - 1));
        };
        let n = &mut self.nodes[id];
        n.unheard = 0;
        n.configured |= configured;
        if std::mem::replace(&mut n.forgotten, false) {
            commands.push(Command::Watch(id));
        }
    }

    /// Of the addresses at which a node may be the one by which it is known, else the first.
    pub fn known(&self, addresses: &[String]) -> Option<String> {
        let known = |a: &&String| self.nodes.iter().any(|n| n.address == **a);
        addresses.iter().find(known).or(addresses.first()).cloned()
    }

    fn leave(&mut self, session: SessionId) {
        if let Some(p) = self.sessions.remove(&session) {
            self.nodes[p.node].sessions -= 1;
        }
    }

    fn tick(&mut self, commands: &mut Vec<Command>) {
        self.ticks += 1;
        let leads = self.primary();
        let term = self.term();
        for (id, n) in self.nodes.iter_mut().enumerate() {
            let fresh =
                Some(id) == leads || n.seen.is_some_and(|s| is_fresh(&s, term, self.max_age));
            n.stale = if fresh { 0 } else { n.stale + 1 };
            n.unheard += u32::from(n.seen.is_none());
            if !n.configured && !n.forgotten && n.unheard > FORGET {
                n.forgotten = true;
                commands.push(Command::Forget(id));
            }
        }
        let asked_lately = |p: &Placed| p.asked.is_some_and(|at| at + AGAIN > self.ticks);
        let mut sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        sessions.sort_unstable();
        for &session in &sessions {
            let Placed { node, attrs, .. } = self.sessions[&session];
            let n = &self.nodes[node];
            // What it follows will not go on.
            let over = n.forgotten || n.seen.is_some_and(|s| s.term < term);
            if n.stale >= if over { OVER } else { STALE } {
                let fit = self.fitting(attrs);
                if !fit.is_empty() && !fit.contains(&node) {
                    commands.push(Command::Pull {
                        session,
                        block: over,
                    });
                }
            }
        }
        sessions.retain(|s| !asked_lately(&self.sessions[s]));
        // As if those that are asked had gone already.
        let mut counts: Vec<usize> = self.nodes.iter().map(|n| n.sessions).collect();
        for p in self.sessions.values().filter(|p| asked_lately(p)) {
            counts[p.node] -= 1;
        }
        let mut few = 1 + sessions.len() / 16;
        for s in sessions {
            let (node, attrs) = (self.sessions[&s].node, self.sessions[&s].attrs);
            let fit = self.fitting(attrs);
            let Some(least) = fit.iter().copied().min_by_key(|n| counts[*n]) else {
                continue;
            };
            let misplaced = !fit.contains(&node);
            let crowded = few > 0 && counts[node] >= counts[least] + SLACK && node != least;
            if misplaced || crowded {
                few -= usize::from(!misplaced);
                counts[node] -= 1;
                counts[least] += 1;
                self.sessions.get_mut(&s).expect("it is there").asked = Some(self.ticks);
                commands.push(Command::Move(s));
            }
        }
    }

    /// The primary: of those that say so, the one of the newest term.
    pub fn primary(&self) -> Option<NodeId> {
        let claims = self.nodes.iter().enumerate();
        let claims = claims.filter_map(|(id, n)| Some((n.seen.filter(|s| s.primary)?.term, id)));
        let newest = self
            .nodes
            .iter()
            .filter_map(|n| n.seen.map(|s| s.term))
            .max();
        // A replica of a newer term has heard of a newer primary than all that claim to be one.
        claims
            .max()
            .filter(|(term, _)| Some(*term) >= newest)
            .map(|(_, id)| id)
    }

    /// The primary's term; 0: there is none.
    fn term(&self) -> u64 {
        let leads = self.primary().and_then(|p| self.nodes[p].seen);
        leads.map_or(0, |s| s.term)
    }

    /// The nodes that a session may be at, the best kind of them.
    fn fitting(&self, attrs: Attrs) -> Vec<NodeId> {
        let (primary, term) = (self.primary(), self.term());
        let replicas = |fresh: bool| -> Vec<NodeId> {
            let of = self.nodes.iter().enumerate().filter(|(_, n)| !n.forgotten);
            let is = |s: &Seen| !s.primary && (!fresh || is_fresh(s, term, self.max_age));
            of.filter(|(_, n)| n.seen.as_ref().is_some_and(is))
                .map(|(id, _)| id)
                .collect()
        };
        let first = |lists: [Vec<NodeId>; 2]| lists.into_iter().find(|l| !l.is_empty());
        let standby = || first([replicas(true), replicas(false)]);
        let any = || {
            let mut fresh = replicas(true);
            fresh.extend(primary);
            first([fresh, replicas(false)])
        };
        match attrs {
            Attrs::Any => any(),
            Attrs::Primary => primary.map(|p| vec![p]),
            Attrs::Standby => standby(),
            Attrs::PreferStandby => first([replicas(true), any().unwrap_or_default()]),
        }
        .unwrap_or_default()
    }

    /// Whether a session may stay at this node.
    pub fn fits(&self, node: NodeId, attrs: Attrs) -> bool {
        self.fitting(attrs).contains(&node)
    }

    /// The node for a session, if there is one. `avoid` is taken only when there is no other.
    pub fn pick(&mut self, attrs: Attrs, avoid: Option<NodeId>) -> Option<NodeId> {
        let fit = self.fitting(attrs);
        let cost = |id: &NodeId| {
            let n = &self.nodes[*id];
            let age = n.seen.and_then(|s| s.age).unwrap_or_default();
            // Being old by a tenth of what is allowed weighs as much as a session.
            let old = age.as_micros() * 10 / self.max_age.as_micros().max(1);
            (Some(*id) == avoid, n.sessions as u128 + old, n.taken)
        };
        let id = fit.into_iter().min_by_key(cost)?;
        self.taken += 1;
        self.nodes[id].taken = self.taken;
        Some(id)
    }
}

/// Whether a node hears the primary of this term, or of a newer one, and is no older than that.
fn is_fresh(s: &Seen, term: u64, max_age: Duration) -> bool {
    s.term >= term && s.age.is_some_and(|a| a <= max_age)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(primary: bool, term: u64, age: Option<u64>) -> Seen {
        Seen {
            primary,
            term,
            age: age.map(Duration::from_millis),
        }
    }

    /// A primary and two fresh replicas.
    fn cluster() -> Router {
        let mut r = Router::new(Duration::from_secs(1));
        for i in 0..3 {
            let found = Event::Found {
                address: format!("h:{i}"),
                configured: i == 0,
            };
            assert_eq!(r.handle(found), [Command::Watch(i)]);
            r.handle(Event::Seen(i, seen(i == 0, 1, Some(10))));
        }
        r
    }

    fn open(r: &mut Router, session: SessionId, attrs: Attrs) -> NodeId {
        let node = r.pick(attrs, None).expect("a node");
        r.handle(Event::Opened {
            session,
            node,
            attrs,
        });
        node
    }

    #[test]
    fn sessions_spread_over_what_they_may_be_at() {
        let mut r = cluster();
        for s in 0..9 {
            open(&mut r, s, Attrs::Any);
        }
        let counts: Vec<usize> = r.nodes.iter().map(|n| n.sessions).collect();
        assert_eq!(counts, [3, 3, 3]);
        assert_eq!(open(&mut r, 20, Attrs::Primary), 0);
        assert_ne!(open(&mut r, 21, Attrs::Standby), 0);
        assert_ne!(open(&mut r, 22, Attrs::PreferStandby), 0);
        r.handle(Event::Ended(20));
        assert_eq!(r.nodes[0].sessions, 3);
        assert!(r.handle(Event::Tick).is_empty(), "nothing to mend");
    }

    #[test]
    fn an_old_or_lost_replica_gets_no_sessions_while_there_is_another() {
        let mut r = cluster();
        for s in 0..6 {
            open(&mut r, s, Attrs::Any);
        }
        for age in [Some(5_000), None] {
            r.handle(Event::Seen(1, seen(false, 1, age)));
            for _ in 0..5 {
                assert_ne!(r.pick(Attrs::Any, None), Some(1));
            }
        }
        // Its sessions are asked to leave, once.
        let moved = r.handle(Event::Tick);
        assert_eq!(moved.len(), 2, "{moved:?}");
        assert!(r.handle(Event::Tick).is_empty());
        // Reads go on where no node is fresh.
        r.handle(Event::Down(0));
        r.handle(Event::Down(2));
        assert_eq!(r.pick(Attrs::Any, None), Some(1));
        assert_eq!(r.pick(Attrs::Primary, None), None);
    }

    #[test]
    fn a_promotion_moves_who_wants_the_primary() {
        let mut r = cluster();
        assert_eq!(open(&mut r, 1, Attrs::Primary), 0);
        // Both say so: the newer term is right.
        r.handle(Event::Seen(2, seen(true, 2, Some(0))));
        assert_eq!(r.primary(), Some(2));
        assert_eq!(r.handle(Event::Tick), [Command::Move(1)]);
        assert_eq!(open(&mut r, 1, Attrs::Primary), 2);
        // The new one is gone, and a replica knows of its term: the old one leads no more.
        r.handle(Event::Seen(1, seen(false, 2, Some(0))));
        r.handle(Event::Down(2));
        assert_eq!(r.primary(), None);
    }

    #[test]
    fn who_waits_at_a_node_that_will_not_go_on_is_pulled_away() {
        let pulled = |r: &mut Router| -> Vec<Command> {
            let all = r.handle(Event::Tick).into_iter();
            all.filter(|c| matches!(c, Command::Pull { .. })).collect()
        };
        let mut r = cluster();
        for s in 0..3 {
            open(&mut r, s, Attrs::Any);
        }
        assert!(pulled(&mut r).is_empty());
        let session = |r: &Router, node| {
            let at = r.sessions.iter().find(|(_, p)| p.node == node);
            *at.expect("one is there").0
        };
        // 2 leads; 0 has handed over, and 1 goes on following that one: it is as fresh as ever.
        r.handle(Event::Seen(0, seen(false, 1, None)));
        r.handle(Event::Seen(2, seen(true, 2, Some(0))));
        for _ in 1..OVER {
            assert!(pulled(&mut r).is_empty(), "they have time to go themselves");
        }
        let mut both = [session(&r, 0), session(&r, 1)];
        both.sort_unstable();
        let both = both.map(|session| Command::Pull {
            session,
            block: true,
        });
        assert_eq!(pulled(&mut r), both);
        for _ in 0..9 {
            assert_eq!(r.pick(Attrs::Any, None), Some(2));
            assert_eq!(r.pick(Attrs::PreferStandby, None), Some(2));
        }
        // Re-pointed, but far behind: only reads, and after a while.
        r.handle(Event::Seen(0, seen(false, 2, Some(0))));
        r.handle(Event::Seen(1, seen(false, 2, Some(0))));
        assert!(pulled(&mut r).is_empty());
        r.handle(Event::Seen(1, seen(false, 2, Some(5_000))));
        for _ in 1..STALE {
            assert!(pulled(&mut r).is_empty());
        }
        let reads = Command::Pull {
            session: session(&r, 1),
            block: false,
        };
        assert_eq!(pulled(&mut r), [reads]);
        // Nowhere else to go.
        r.handle(Event::Down(0));
        r.handle(Event::Down(2));
        assert!(pulled(&mut r).is_empty());
    }

    #[test]
    fn a_new_node_gets_its_share_a_few_at_a_time() {
        let mut r = cluster();
        r.handle(Event::Down(2));
        for s in 0..40 {
            open(&mut r, s, Attrs::Any);
        }
        r.handle(Event::Seen(2, seen(false, 1, Some(5))));
        for _ in 0..100 {
            let moves = r.handle(Event::Tick);
            assert!(moves.len() <= 3);
            for m in moves {
                let Command::Move(s) = m else { panic!("{m:?}") };
                open(&mut r, s, Attrs::Any);
            }
        }
        let counts: Vec<usize> = r.nodes.iter().map(|n| n.sessions).collect();
        assert!(counts.iter().all(|c| (12..=15).contains(c)), "{counts:?}");
    }

    #[test]
    fn a_node_with_two_addresses_is_one() {
        let r = cluster();
        let at = |all: &[&str]| r.known(&all.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        assert_eq!(at(&["db2:1", "h:1"]).as_deref(), Some("h:1"));
        assert_eq!(at(&["h:2", "h:1"]).as_deref(), Some("h:2"));
        assert_eq!(at(&["db4:1", "h:4"]).as_deref(), Some("db4:1"));
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn who_is_gone_is_forgotten_unless_it_is_configured() {
        let mut r = cluster();
        for i in 0..3 {
            r.handle(Event::Down(i));
        }
        let mut forgotten = Vec::new();
        for _ in 0..=FORGET {
            forgotten.extend(r.handle(Event::Tick));
        }
        assert_eq!(forgotten, [Command::Forget(1), Command::Forget(2)]);
        let back = Event::Found {
            address: "h:1".into(),
            configured: false,
        };
        assert_eq!(r.handle(back), [Command::Watch(1)]);
    }
}
