//! Leases without synchronised clocks: a primary knows until when no other one can have been named.
//!
//! ```text
//! holder:   sent ------------------------ length ----| over for the holder
//! grantor:          received ------------ length + drift ----| over for the grantor
//! ```
//! The holder counts from *sending* its request, the grantor from *receiving* it, which is later. Each counts on its own clock. The grantor adds what one
//! clock may run faster than the other in that time ([`Terms::DRIFT_PERCENT`]). So the lease is over for the holder before it is over for the grantor. Nanoseconds come from a
//! clock that goes on while the machine is suspended (`env::Clock::boot_nanos`).
//!
//! **The grantor has to be the leader of the consensus.** One that was replaced without knowing would go on to grant. So a request is granted after a
//! majority has confirmed the leader, in a round that began after the request came in. A new leader was elected after the last such round of the old one.
//!
//! **A new leader knows how old the last lease can be** ([`Ballots`]). Each voter says with its vote how long ago it took part in a round, or in a request if it
//! was the leader. Of the majority of a round and the majority of the election one voter is in both, and its word came after the request. So no lease of
//! an earlier leader was asked for after the latest of these times, and the new leader waits one lease out from there. The time in which no leader was
//! heard counts: the wait and the election run side by side.
//!
//! ```text
//! last request    last round        silence        vote, with its age          one lease after the last round
//! ----|---------------|------------------------------|------------------------------|---- over
//! ```
//!
//! A lease protects reads at a primary that is cut off. Commits are safe without it, by terms ([`crate::standing`]).
//!
//! Left out on purpose: leases of replicas for reads (`replica::lease`). A primary grants none of them beyond its own lease.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::catalogue::NodeId;

/// How long leases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The length, for the holder.
    pub length: Duration,
    /// How often the holder asks anew.
    pub every: Duration,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            length: Duration::from_millis(1500),
            every: Duration::from_millis(250),
        }
    }
}

impl Terms {
    /// A clock runs at most that much faster than another.
    pub const DRIFT_PERCENT: u64 = 10;

    /// The members have agreed on this length, in milliseconds; none: on none. It is never longer than these: a member that does not know of it yet waits for leases that
    /// are over already, and for none too short.
    pub fn agreed(self, lease: Option<u64>) -> Terms {
        let length = lease.map_or(self.length, Duration::from_millis);
        let length = length.min(self.length);
        let every = self.every.min(length / 6);
        Terms { length, every }
    }

    /// Whether the holder takes its lease for no longer than that.
    pub(crate) fn fit(self, request: Request) -> bool {
        let usual = millis(Terms::default().length);
        let taken = request.length.unwrap_or(usual);
        taken <= millis(self.length) || env::fault::planted("lease.any_length")
    }

    fn held_nanos(self) -> u64 {
        nanos(self.length)
    }

    /// The length for the grantor.
    pub(crate) fn granted_nanos(self) -> u64 {
        self.held_nanos() / 100 * (100 + Terms::DRIFT_PERCENT)
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).expect("a lease is shorter than 584 years")
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).expect("a lease is shorter than 584 years")
}

/// One request of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub holder: NodeId,
    /// The term that the holder leads.
    pub term: u64,
    /// Ascending for one start of the holder.
    pub number: u64,
    /// The holder's start: a number drawn anew at each.
    pub life: u64,
    /// For how long the holder takes it, in milliseconds; none: as usual, of a build that knows no other length.
    #[serde(default)]
    pub length: Option<u64>,
}

/// The side of the primary. Times are nanoseconds of its own clock.
#[derive(Clone, Debug)]
pub struct Holder {
    terms: Terms,
    node: NodeId,
    term: u64,
    life: u64,
    next: u64,
    /// When requests without an answer were sent.
    sent: BTreeMap<u64, u64>,
    until: Option<u64>,
}

impl Holder {
    /// No lease yet.
    pub fn new(terms: Terms, node: NodeId, term: u64, life: u64) -> Holder {
        Holder {
            terms,
            node,
            term,
            life,
            next: 0,
            sent: BTreeMap::new(),
            until: None,
        }
    }

    /// Leases are so long from now on. What was granted for another time counts no more.
    pub fn agree(&mut self, terms: Terms) {
        if self.terms != terms && !env::fault::planted("lease.unagreed") {
            self.terms = terms;
            self.sent.clear();
            self.until = None;
        }
    }

    /// A request that leaves now, at the earliest.
    pub fn request(&mut self, now: u64) -> Request {
        let number = self.next;
        self.next += 1;
        self.sent.insert(number, now);
        // An answer to an older one would bring nothing any more.
        let old = now.saturating_sub(self.terms.held_nanos());
        self.sent.retain(|_, at| *at >= old);
        Request {
            holder: self.node,
            term: self.term,
            number,
            life: self.life,
            // As of a build before this one, which takes each lease for one of the usual length.
            length: (!env::fault::planted("lease.unagreed")).then_some(millis(self.terms.length)),
        }
    }

    /// The request was granted.
    pub fn granted(&mut self, request: Request, now: u64) {
        if (request.holder, request.term, request.life) != (self.node, self.term, self.life) {
            return;
        }
        let Some(sent) = self.sent.remove(&request.number) else {
            return;
        };
        let from = if env::fault::planted("lease.from_answer") {
            now
        } else {
            sent
        };
        let until = from + self.terms.held_nanos();
        self.until = Some(self.until.map_or(until, |u| u.max(until)));
    }

    /// Whether no other primary can have been named yet.
    pub fn holds(&self, now: u64) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Until when the lease is held, in nanoseconds of this node's clock.
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// Nanoseconds left of the lease.
    pub fn left(&self, now: u64) -> u64 {
        self.until.map_or(0, |until| until.saturating_sub(now))
    }
}

/// What a candidate hears with the votes: when a lease may have been asked for last of an earlier leader. Times are nanoseconds of the candidate's clock.
///
/// A voter counts on its own clock. Its time and the candidate's wait add up to one lease of the grantor, which holds what clocks may drift.
#[derive(Clone, Copy, Debug)]
pub struct Ballots {
    latest: u64,
}

impl Ballots {
    /// The candidate itself has taken part at this time last.
    pub fn new(own: u64) -> Ballots {
        Ballots { latest: own }
    }

    /// A vote has come in now, from a voter that took part at most `age` nanoseconds before it voted.
    pub fn vote(&mut self, now: u64, age: u64) {
        // It was given before now, so this is the latest time.
        if !env::fault::planted("lease.own_silence") {
            self.latest = self.latest.max(now.saturating_sub(age));
        }
    }

    /// No lease of an earlier leader was asked for after that.
    pub fn latest(&self) -> u64 {
        self.latest
    }
}

/// What a new consensus leader knows of those before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// No lease of an earlier leader was asked for after that, in nanoseconds of the new leader's clock.
    pub granted: u64,
    /// The leader that was replaced, as a majority heard nothing of it; none: that is not known.
    pub replaced: Option<NodeId>,
}

/// The side of the consensus leader. Times are nanoseconds of its own clock.
#[derive(Clone, Debug)]
pub struct Grantor {
    terms: Terms,
    /// No lease of an earlier consensus leader reaches beyond.
    clear: u64,
    /// When the last lease of this grantor is over.
    until: Option<u64>,
}

impl Grantor {
    /// A consensus leader that was elected. An earlier one may have granted a lease that was asked for until `granted`.
    pub fn elected(terms: Terms, granted: u64) -> Grantor {
        let clear = match env::fault::planted("lease.not_waited_out") {
            true => 0,
            false => granted + terms.granted_nanos(),
        };
        Grantor {
            terms,
            clear,
            until: None,
        }
    }

    /// A request of the leader of the data came in. It may be granted once a round with a majority, begun after this call, has confirmed this
    /// grantor. Until then it counts as granted for the one thing that matters here: when the lease is over.
    pub fn received(&mut self, now: u64) {
        let until = now + self.terms.granted_nanos();
        self.until = Some(self.until.map_or(until, |u| u.max(until)));
    }

    /// Whether no lease is left, of this grantor or of an earlier one.
    pub fn over(&self, now: u64) -> bool {
        now >= self.clear && self.until.is_none_or(|until| now >= until)
    }

    /// Nanoseconds until [`Grantor::over`], if nothing else comes in.
    pub fn left(&self, now: u64) -> u64 {
        self.clear.max(self.until.unwrap_or(0)).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_holder_counts_from_sending() {
        let mut holder = Holder::new(Terms::default(), 1, 7, 3);
        let request = holder.request(SECOND);
        assert!(!holder.holds(SECOND), "nothing was granted yet");
        holder.granted(request, 2 * SECOND);
        assert!(holder.holds(SECOND * 5 / 2 - 1));
        assert!(!holder.holds(SECOND * 5 / 2));
        assert_eq!(holder.left(2 * SECOND), SECOND / 2);
    }

    #[test]
    fn a_length_that_is_agreed_on_ends_a_longer_lease() {
        let terms = Terms::default();
        assert_eq!(terms.agreed(None), terms);
        assert_eq!(terms.agreed(Some(9000)), terms, "never longer");
        let short = terms.agreed(Some(600));
        assert_eq!(short.every, Duration::from_millis(100));
        let mut holder = Holder::new(terms, 1, 7, 3);
        let (first, late) = (holder.request(0), holder.request(SECOND / 10));
        holder.granted(first, 0);
        holder.agree(short);
        assert!(!holder.holds(SECOND / 10));
        holder.granted(late, SECOND / 10);
        assert!(!holder.holds(SECOND / 10), "it was asked for another time");
        let request = holder.request(SECOND);
        holder.granted(request, SECOND);
        holder.agree(short);
        assert!(holder.holds(SECOND * 8 / 5 - 1) && !holder.holds(SECOND * 8 / 5));
    }

    #[test]
    fn an_older_answer_takes_nothing_back() {
        let mut holder = Holder::new(Terms::default(), 1, 7, 3);
        let (first, second) = (holder.request(0), holder.request(SECOND));
        holder.granted(second, SECOND);
        holder.granted(first, SECOND);
        assert!(holder.holds(2 * SECOND));
    }

    #[test]
    fn an_answer_to_another_start_or_term_is_not_taken() {
        let mut holder = Holder::new(Terms::default(), 1, 7, 3);
        let request = holder.request(0);
        holder.granted(Request { life: 2, ..request }, 0);
        holder.granted(Request { term: 6, ..request }, 0);
        assert!(!holder.holds(0));
        holder.granted(request, 0);
        holder.granted(request, SECOND);
        assert!(!holder.holds(SECOND * 3 / 2), "an answer counts once");
    }

    #[test]
    fn the_youngest_word_of_a_voter_counts() {
        let mut ballots = Ballots::new(SECOND);
        ballots.vote(5 * SECOND, 5 * SECOND);
        assert_eq!(ballots.latest(), SECOND, "it took part before");
        ballots.vote(5 * SECOND, 2 * SECOND);
        ballots.vote(5 * SECOND, 3 * SECOND);
        assert_eq!(ballots.latest(), 3 * SECOND);
        // A voter that was just started knows of nothing before.
        ballots.vote(6 * SECOND, 0);
        assert_eq!(ballots.latest(), 6 * SECOND);
    }

    #[test]
    fn a_grantor_waits_longer_and_a_new_one_waits_one_out() {
        let mut grantor = Grantor::elected(Terms::default(), 0);
        assert!(!grantor.over(SECOND * 164 / 100));
        assert!(grantor.over(SECOND * 165 / 100));
        grantor.received(2 * SECOND);
        assert!(!grantor.over(3 * SECOND));
        assert_eq!(grantor.left(3 * SECOND), SECOND * 65 / 100);
        assert!(grantor.over(4 * SECOND));
    }
}
