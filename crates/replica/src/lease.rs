//! Read leases: a replica that holds one has everything that was acknowledged, and need not ask.
//!
//! ```text
//! holder:   asks ─────────────────── LENGTH ───────────────────| over for the holder
//! grantor:        │ ceiling: what each holder has received ────────── GRANTED ────| over for the grantor
//!                 └ `first`: the last position given, read after the ceiling was set ──▶ the holder answers at `first` or above
//! ```
//! **The promise.** While a lease is in force at the primary, nothing is published that its holder has not received. So a holder has
//! received everything that was published since its lease began. What was published before lies at or below `first`. Published is what was
//! acknowledged, at any level, or shown to any reader at any node.
//!
//! **Time.** The holder counts from *sending* its request, the grantor from *receiving* it, each on its own clock. The grantor adds what one clock may run
//! faster than the other ([`DRIFT_PERCENT`]). So a lease is over for its holder before it is over for the grantor. Times are nanoseconds of a clock that
//! goes on while the machine is suspended (`env::Clock::boot_nanos`).
//!
//! **A lease that begins.** The ceiling is set first, and then the last position given is read. A thread that publishes looks at the ceiling after
//! its position was given. Positions are given under one lock. So either that thread sees the ceiling, or its position is at or below `first`.
//!
//! **A lease goes on** only while its holder keeps up ([`Pace`]). A holder that does not answer is asked nothing: its lease runs out, and writers have waited one
//! lease at most. A request from the same life of a replica over a new connection takes the place of the old one. The length of leases
//! is no setting, because a new primary has to know how long those of its predecessor may be.
//!
//! **A lease is given back** when the primary wants it ([`Holder::gives_back`]): when it hands over, or while a holder that still answers holds writers up. The holder answers no
//! read that it looks at afterwards. A read that it has looked at before had arrived by then, so it need not see what is published once the primary has heard. The holder names
//! its last request, and no answer to that one or an earlier one counts any more. So it does not matter in which order the primary hears of them.
//!
//! Left out on purpose: clocks and messages; which replicas may hold a lease, and which nodes wait leases out (`node::lending`).

use base::{Ceiling, Position};
use env::fault::planted;
use env::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::collections::BTreeMap;

/// How long a lease is for its holder, from when it asked: nanoseconds.
pub const LENGTH: u64 = 250_000_000;
/// A clock runs at most that much faster than another.
pub const DRIFT_PERCENT: u64 = 10;
/// How long it is for the grantor, from when the request came in.
pub const GRANTED: u64 = LENGTH / 100 * (100 + DRIFT_PERCENT);
/// For tests in which a primary starts again: its holders count so many times [`LENGTH`], and its next life waits out as many times [`GRANTED`]. No start takes that long.
pub fn stretch() -> u64 {
    if planted("lease.stretched") { 20 } else { 1 }
}
/// How often a holder asks anew.
pub const EVERY: u64 = LENGTH / 5;
/// A lease goes on while its holder takes at most so many times as long as a replica may that gets one ([`Pace`]). Where processors are busy, each wait for
/// one counts, and a lease that comes and goes costs its readers more than it saves writers.
const LEEWAY: u64 = 4;

/// A replica asks for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Drawn anew each time that a node begins to follow.
    pub life: u64,
    /// Ascending in a life, over all its connections.
    pub number: u64,
}

/// A lease, as the grantor knows it.
#[derive(Clone, Copy, Debug)]
struct Lent {
    connection: u64,
    number: u64,
    first: Position,
    until: u64,
    /// What the holder has said that it has.
    received: Position,
}

/// What comes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A lease is in force as soon as the ceiling is set: see [`Grantor::begins`].
    Begins,
    /// The lease goes on: it answers from this position on.
    GoesOn(Position),
    /// A later request of the same life was here before.
    Late,
}

/// The side of the primary. Times are of its own clock.
#[derive(Debug, Default)]
pub struct Grantor {
    /// By life.
    lent: BTreeMap<u64, Lent>,
    /// No lease of another primary, or of an earlier life of this one, reaches beyond.
    clear: u64,
}

impl Grantor {
    /// Leases that others have granted may be in force until then.
    pub fn wait_out(&mut self, until: u64) {
        if !planted("lease.not_waited_out") {
            self.clear = self.clear.max(until);
        }
    }

    /// A request came in over this connection, whose replica has received this.
    pub fn ask(&mut self, ask: Ask, connection: u64, received: Position, now: u64) -> Asked {
        let until = now + GRANTED;
        match self.lent.get_mut(&ask.life) {
            Some(l) if ask.number <= l.number => return Asked::Late,
            Some(l) if now < l.until => {
                l.until = l.until.max(until);
                (l.connection, l.number) = (connection, ask.number);
                l.received = l.received.max(received);
                return Asked::GoesOn(l.first);
            }
            _ => {}
        }
        let begins = Lent {
            connection,
            number: ask.number,
            first: Ceiling::NONE,
            until,
            received,
        };
        self.lent.insert(ask.life, begins);
        Asked::Begins
    }

    /// The ceiling was set, and `first` is the last position that had been given afterwards.
    pub fn begins(&mut self, life: u64, first: Position) {
        if let Some(l) = self.lent.get_mut(&life) {
            l.first = first;
        }
    }

    /// Whether the replica at this connection has a lease.
    pub fn lends_to(&self, connection: u64, now: u64) -> bool {
        let mut all = self.lent.values();
        all.any(|l| l.connection == connection && now < l.until)
    }

    /// The replica at this connection has received this.
    pub fn acked(&mut self, connection: u64, received: Position) {
        let all = self.lent.values_mut();
        for l in all.filter(|l| l.connection == connection) {
            l.received = l.received.max(received);
        }
    }

    /// The holder of this life answers by no lease that it asked for up to this request.
    pub fn given_back(&mut self, ask: Ask) {
        self.lent
            .retain(|life, l| *life != ask.life || l.number > ask.number);
    }

    /// Leases that are over do not count any more.
    pub fn lapse(&mut self, now: u64) {
        self.lent.retain(|_, l| now < l.until);
    }

    /// The highest position that may be published.
    pub fn ceiling(&self, now: u64) -> Position {
        if now < self.clear {
            return Position::ZERO;
        }
        if planted("lease.unreceived_ack") {
            return Ceiling::NONE;
        }
        let all = self.lent.values().filter(|l| now < l.until);
        all.map(|l| l.received).min().unwrap_or(Ceiling::NONE)
    }

    /// Whether no lease is left, of this grantor or of others.
    pub fn is_over(&self, now: u64) -> bool {
        now >= self.clear && self.lent.values().all(|l| now >= l.until)
    }
}

/// How long a replica takes to acknowledge. Times are nanoseconds of the primary.
#[derive(Debug)]
pub struct Pace {
    most: u64,
    /// Over the last few; none: nothing is known.
    mean: Option<u64>,
    /// The oldest that was sent and is not acknowledged, and when.
    pending: Option<(Position, u64)>,
    /// When the replica was offered a lease, and has not answered.
    offered: Option<u64>,
}

impl Pace {
    /// A replica that takes longer than `most` gets no lease, and one that takes longer than [`LEEWAY`] times that keeps none.
    pub fn new(most: u64) -> Pace {
        Pace {
            most,
            mean: None,
            pending: None,
            offered: None,
        }
    }

    /// Something up to here leaves now.
    pub fn sent(&mut self, upto: Position, now: u64) {
        self.pending.get_or_insert((upto, now));
    }

    /// The replica has received everything up to here.
    pub fn acked(&mut self, received: Position, now: u64) {
        if let Some((_, at)) = self.pending.take_if(|p| received >= p.0) {
            self.count(now.saturating_sub(at));
        }
    }

    /// A lease is offered now.
    pub fn offers(&mut self, now: u64) {
        self.offered = Some(now);
    }

    /// The replica asks for a lease.
    pub fn asked(&mut self, now: u64) {
        if let Some(at) = self.offered.take() {
            self.count(now.saturating_sub(at));
        }
    }

    fn count(&mut self, took: u64) {
        // One long silence is forgotten after some tens of good answers.
        let took = took.min(self.most.saturating_mul(16));
        self.mean = Some(self.mean.map_or(took, |m| (m * 7 + took) / 8));
    }

    /// Whether something that was sent has waited for its acknowledgement since then, or for longer.
    pub fn waits_since(&self, then: u64) -> bool {
        self.pending.is_some_and(|p| p.1 <= then)
    }

    /// Whether a lease of this replica would hold writers up for no longer than it may. `holds`: it has one, which is to go on.
    pub fn keeps_up(&self, holds: bool, now: u64) -> bool {
        let most = match holds {
            true => self.most.saturating_mul(LEEWAY),
            false => self.most,
        };
        let late = |p: (Position, u64)| now.saturating_sub(p.1) > most;
        self.mean.is_some_and(|m| m <= most) && !self.pending.is_some_and(late)
    }
}

/// The side of the replica: its requests. Times are of its own clock.
#[derive(Debug)]
pub struct Holder {
    life: u64,
    next: u64,
    /// When requests without an answer were sent.
    sent: BTreeMap<u64, u64>,
    /// The primary at the other end of the present connection grants leases.
    offered: bool,
    asked: u64,
    until: u64,
}

impl Holder {
    /// `life`: a number that no other has.
    pub fn new(life: u64) -> Holder {
        Holder {
            life,
            next: 0,
            sent: BTreeMap::new(),
            offered: false,
            asked: 0,
            until: 0,
        }
    }

    /// The primary offers a lease: a request that leaves now, at the earliest.
    pub fn offered(&mut self, now: u64) -> Ask {
        self.offered = true;
        self.ask(now)
    }

    /// A request for the lease to go on, if it is time for one. What has run out is offered anew.
    pub fn due(&mut self, now: u64) -> Option<Ask> {
        let holds = self.offered && now < self.until;
        (holds && now.saturating_sub(self.asked) >= EVERY).then(|| self.ask(now))
    }

    fn ask(&mut self, now: u64) -> Ask {
        self.next += 1;
        self.asked = now;
        // An answer to an older one would bring nothing any more.
        self.sent.retain(|_, at| now.saturating_sub(*at) < LENGTH);
        self.sent.insert(self.next, now);
        Ask {
            life: self.life,
            number: self.next,
        }
    }

    /// The request was granted: until when; none: that brings nothing.
    pub fn granted(&mut self, number: u64, now: u64) -> Option<u64> {
        let sent = self.sent.remove(&number)?;
        let from = match planted("lease.from_answer") {
            true => now,
            false => sent,
        };
        let until = from + LENGTH * stretch();
        if until <= self.until {
            return None;
        }
        self.until = until;
        Some(until)
    }

    /// The primary wants its lease back: nothing is answered by it from now on. What the primary is told; none: nothing was ever asked for.
    pub fn gives_back(&mut self, held: &Held) -> Option<Ask> {
        if !planted("lease.given_back_and_held") {
            held.let_go();
        }
        self.let_go();
        let (life, number) = (self.life, self.next);
        (number > 0).then_some(Ask { life, number })
    }

    /// The connection is no more: no answer to an earlier request counts.
    pub fn let_go(&mut self) {
        self.sent.clear();
        (self.offered, self.until) = (false, 0);
    }
}

/// The lease that a replica holds, for all threads that read. One thread writes.
#[derive(Debug, Default)]
pub struct Held {
    /// 0: none.
    until: AtomicU64,
    term: AtomicU64,
    first: AtomicU64,
}

impl Held {
    /// A lease of the primary of this term: it answers at `first` or above, until then.
    pub fn hold(&self, term: u64, first: Position, until: u64) {
        let same = self.term.load(SeqCst) == term && self.first.load(SeqCst) == first.as_u64();
        if !same {
            // Between this and the last store nothing is answered: the three are never those of two leases.
            self.until.store(0, SeqCst);
            self.term.store(term, SeqCst);
            self.first.store(first.as_u64(), SeqCst);
        }
        self.until.store(until, SeqCst);
    }

    /// Nothing is held any more.
    pub fn let_go(&self) {
        self.until.store(0, SeqCst);
    }

    /// Whether a read may take `received` for its timestamp. It has arrived before *received* was looked at, and `now` is read after that. `followed`: the term whose
    /// primary's words count, 0: none.
    pub fn may_answer(&self, followed: u64, received: Position, now: impl FnOnce() -> u64) -> bool {
        let mut until = self.until.load(SeqCst);
        loop {
            if until == 0 || followed == 0 {
                return false;
            }
            let term = self.term.load(SeqCst);
            let first = Position::from_u64(self.first.load(SeqCst));
            let again = self.until.load(SeqCst);
            if again == until {
                return term == followed && received >= first && now() < until;
            }
            // The lease went on, or is another one.
            until = again;
        }
    }
}

mod words;

pub use words::Word;

#[cfg(all(test, not(feature = "shuttle")))] // shuttle's atomics work inside its scheduler only
mod tests;
