//! A session never goes back in time: what it reads later holds what it read before, whichever node it asks. A fail-over that the
//! policy lets lose something (or a crash, with `synchronous_commit = off`) is where a session may lose its past, and only there.

use base::Position;
use replica::ship::fork;

use crate::model::{Promise, Terms};
use crate::world::World;

impl World {
    /// Session `k` reads at `at` of this history.
    pub fn check_session(&mut self, k: usize, i: usize, at: Position, terms: &Terms) {
        let s = &self.sessions[k];
        if s.seen.is_empty() {
            return;
        }
        assert!(at >= s.token, "session {k} went back to {at} at node {i}");
        let common = fork(terms, &s.seen);
        // Two primaries at once: it may have read at either.
        let excused = !self.report.false_premises.is_empty() || self.lossy.contains(&common);
        assert!(
            common >= s.token || excused,
            "session {k} has read {} and finds another history at node {i}, the same up to {common}",
            s.token
        );
    }

    /// The history that is followed from now on ends, for those before, at `last`. Sessions that have seen more lose it, if that was allowed.
    pub fn sessions_lose(&mut self, terms: &Terms, last: Position, allowed: bool) {
        for k in 0..self.sessions.len() {
            let s = &self.sessions[k];
            if s.seen.is_empty() || s.token <= fork(terms, &s.seen).min(last) {
                continue;
            }
            let token = s.token;
            // It was lost before, and a node that has not heard so has shown it since.
            let allowed = allowed || self.lossy.contains(&fork(terms, &s.seen));
            assert!(
                allowed,
                "session {k} has read {token}, and the history goes on without it"
            );
            self.say(|| format!("session {k} loses its past above {last}"));
            self.sessions[k] = Default::default();
        }
    }

    /// The weakest promise that clients were given, if they asked for less than the policy.
    pub(super) fn weakest(&self) -> Promise {
        match (self.config.weak, self.config.needed) {
            (true, _) => Promise::Off,
            (false, 0) => Promise::Local,
            (false, _) => Promise::Policy,
        }
    }
}
