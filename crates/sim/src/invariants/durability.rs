//! An acknowledged commit survives what its promise says:
//!
//! | promise | survives |
//! |---|---|
//! | `off` | a planned switch |
//! | `local`, and all others with no replica needed | also crashes and restarts of the primary |
//! | `remote_write` with N replicas needed | also a forced promotion as below, unless a replica has lost its memory with the commit in it |
//! | `on`, `remote_apply` with N replicas needed | also a forced promotion that looked at enough nodes to meet one of the 1 + N that have it |

use base::Position;

use crate::machine::Machine;
use crate::model::{Promise, Terms};
use crate::primary::{Pending, Primary};
use crate::world::{NODES, World};

impl World {
    /// A client is told that its commit is done.
    pub fn acknowledge(&mut self, i: usize, p: &Primary, a: &Pending) {
        let (at, term) = (a.at, p.term);
        self.say(|| format!("node {i} acknowledges {at}, {:?}", a.promise));
        let now = self.machines[i].env.clock.unix_micros();
        self.model.acknowledged(term, at, a.promise, now);
        self.report.acknowledged += 1;
        if a.promise == Promise::Policy {
            self.check_terms(i, term, at);
            self.check_persisted(i, at);
        }
        if let base::CommitWait::Applied(at) = a.held
            && self.config.needed > 0
        {
            let shows = |m: &Machine| {
                let f = m.follower().and_then(|f| f.node.as_ref()?.following());
                f.is_some_and(|f| f.marks.visible.get() >= at)
            };
            let showing = self.machines.iter().filter(|m| shows(m)).count();
            // Who showed it may have gone down since it said so.
            let down = self.machines.iter().filter(|m| m.follower().is_none());
            assert!(
                showing + down.count() > self.config.needed.saturating_sub(1),
                "remote_apply acknowledged {at} and {showing} replicas show it"
            );
        }
    }

    /// So many replicas as the policy asks for have this position on their disk; those that are down, or have no node now, may.
    fn check_persisted(&self, i: usize, at: Position) {
        let may_have = |m: &Machine| {
            let f = m.follower().and_then(|f| f.node.as_ref()?.following());
            f.is_none_or(|f| f.marks.persisted.get() >= at)
        };
        let others = self.machines.iter().enumerate().filter(|(j, _)| *j != i);
        let have = others.filter(|(_, m)| may_have(m)).count();
        assert!(
            have >= self.config.needed,
            "node {i} acknowledges {at} by the policy, and {have} replicas have it on their disk"
        );
    }

    /// The primary of this term went down and came back with its log up to `last`.
    pub fn came_back(&mut self, i: usize, term: u64, last: Position) {
        let lost = self.model.crashed(term, last);
        self.sites.crashed(term, last);
        if let Some(promise) = lost {
            assert!(
                promise == Promise::Off || self.machines[i].lied,
                "node {i} acknowledged a commit as {promise:?}, went down, and came back without it (up to {last})"
            );
        }
        let terms = self.machines[i].open_terms();
        let off = self.config.weak || self.machines[i].lied;
        self.sessions_lose_tail(&terms, term, last, off);
    }

    /// Sessions that have read commits of this term above `last`, which are gone.
    fn sessions_lose_tail(&mut self, terms: &Terms, term: u64, last: Position, allowed: bool) {
        for k in 0..self.sessions.len() {
            let s = &self.sessions[k];
            let mine = s.seen.last().is_some_and(|t| t.0 == term);
            if !mine || s.token <= last {
                continue;
            }
            let token = s.token;
            assert!(
                allowed,
                "session {k} has read {token}, and the primary came back with {last}, of {terms:?}"
            );
            self.say(|| format!("session {k} loses its past above {last}"));
            self.sessions[k] = Default::default();
        }
    }

    /// Node `i` leads a new term of this history, which goes on behind `start`.
    pub fn switched(&mut self, i: usize, forced: bool, terms: &Terms, start: Position) {
        let needed = self.config.needed;
        let enough = needed > 0 && self.considered >= NODES - needed;
        let excused = !self.report.false_premises.is_empty();
        for ((at, term), promise) in self.model.missing(terms, start) {
            let forgotten = |m: &Machine| m.forgot.iter().any(|f| f.0 < at && at <= f.1);
            let weak = match promise {
                Promise::Off | Promise::Local => true,
                Promise::Remote => self.machines.iter().any(forgotten),
                Promise::Policy => false,
            };
            let allowed = excused || (forced && (weak || !enough));
            assert!(
                allowed,
                "node {i} leads behind {start} without {at} of term {term}, which was acknowledged as {promise:?} \
                 (forced: {forced}, {} nodes looked at, {needed} needed)",
                self.considered
            );
            self.model.forgiven.insert((at, term));
            self.report.forgiven += 1;
        }
        let weakest = self.weakest();
        let allowed = excused || (forced && (weakest < Promise::Policy || !enough));
        if allowed {
            self.lossy.insert(start);
        }
        self.sessions_lose(terms, start, allowed);
    }

    /// The clients of a primary that goes down hear nothing.
    pub fn abandon(&mut self, p: &Primary) {
        let waiting = p.pending.len();
        if waiting > 0 {
            self.say(|| format!("{waiting} clients do not learn what became of their commits"));
        }
    }

    /// At the end: one history, and everything acknowledged and not forgiven is in it.
    pub fn check_end(&mut self) {
        let p = self.machines.iter().find_map(|m| m.primary());
        let p = p.expect("the cluster is led");
        let (terms, last) = (p.terms.clone(), p.flushed());
        let excused = !self.report.false_premises.is_empty();
        for ((at, term), promise) in self.model.missing(&terms, last) {
            assert!(
                excused,
                "{at} of term {term} was acknowledged as {promise:?} and is not in the history at the end"
            );
            self.report.forgiven += 1;
        }
        self.check_sites(&terms, last);
        let want = self.model.rows(&terms, last);
        for i in 0..NODES {
            self.check_node(i);
            assert_eq!(
                self.terms_of(i),
                Some(terms.clone()),
                "node {i} has other terms"
            );
        }
        self.say(|| format!("all show {last}: {} rows", want.len()));
    }
}
