//! Read leases at a primary: which replicas get one, and which leases of others a node waits out before it publishes.
//!
//! ```text
//! every 10 ms   the replica follows live, holds none ──▶ Offer
//! Ask           it keeps up, this node leads that long ──▶ `Shipping::lend`: the ceiling, then where it answers from ──▶ Granted
//! every 10 ms   this node leads no more, or the holder holds writers up ──▶ Wanted
//! GivenBack     `Shipping::given_back`: the ceiling rises
//! ```
//! | a node that begins to lead | waits out |
//! |---|---|
//! | after a hand-over | nothing: the old primary is sealed, and says so when its leases are given back or over ([`Node::sealed_at`]) |
//! | named by the members | nothing: a primary grants no lease beyond its own, and that is over before another node is named |
//! | by force | one lease, from the promotion on: the old primary may have granted it just before it went down |
//! | in a directory whose node has granted leases | one lease, from its start on: it has forgotten them |
//!
//! That a directory's node has granted leases is durable before the first one is (`wal::DataDir::lends`).
//!
//! Left out on purpose: a holder that stands still. It gives nothing back, and its lease is waited out, a quarter of a second.

use base::{Position, Result};
use replica::lease::{Ask, EVERY, GRANTED, LENGTH, Pace, Word, stretch};

use crate::errors::failed;
use crate::node::Node;
use crate::promote::Role;

/// Of one connection.
pub(crate) struct Lending {
    pace: Pace,
    /// The next offer is made no sooner: nanoseconds.
    next: u64,
    /// The lease is wanted back no sooner than this.
    wants: u64,
}

impl Lending {
    /// None: this node grants no leases.
    pub fn new(node: &Node) -> Option<Lending> {
        let leases = node.shared().options.leases?;
        let most = u64::try_from(leases.max_commit_wait.as_nanos()).unwrap_or(u64::MAX);
        Some(Lending {
            pace: Pace::new(most),
            next: 0,
            wants: 0,
        })
    }

    /// See [`Pace::sent`].
    pub fn sent(&mut self, upto: Position, now: u64) {
        self.pace.sent(upto, now);
    }

    /// See [`Pace::acked`].
    pub fn acked(&mut self, received: Position, now: u64) {
        self.pace.acked(received, now);
    }

    /// Whether a lease is offered now. A replica that holds one asks by itself for it to go on.
    pub fn offers(&mut self, node: &Node, id: u64) -> bool {
        let now = node.clock().boot_nanos();
        if now < self.next || !node.may_lend() || node.shipping().lends_to(id, now) {
            return false;
        }
        self.next = now + 2 * EVERY;
        self.pace.offers(now);
        true
    }

    /// Whether the replica at this connection is to give its lease back now. It is told once in the length of a lease.
    pub fn wants_back(&mut self, node: &Node, id: u64) -> bool {
        let now = node.clock().boot_nanos();
        if now < self.wants || !node.shipping().lends_to(id, now) {
            return false;
        }
        let holds_up = self.pace.waits_since(now.saturating_sub(EVERY));
        if node.may_lend() && !holds_up {
            return false;
        }
        (self.wants, self.next) = (now + LENGTH, now + LENGTH);
        true
    }

    /// The replica at this connection asks. What it is told; none: nothing.
    pub fn asked(&mut self, node: &Node, id: u64, ask: Ask) -> Option<Word> {
        let now = node.clock().boot_nanos();
        self.pace.asked(now);
        let holds = node.shipping().lends_to(id, now);
        if !self.pace.keeps_up(holds, now) {
            return None;
        }
        let (leads, order) = (|| node.may_lend(), &node.shared().pipeline.order);
        let first = (node.shipping()).lend(id, ask, now, leads, || order.last_given())?;
        Some(Word::Granted {
            term: node.term(),
            number: ask.number,
            first,
        })
    }
}

impl Node {
    /// Whether this node asks for read leases while it follows.
    pub fn asks_for_leases(&self) -> bool {
        self.shared().options.leases.is_some_and(|l| l.asks)
    }

    /// Whether this node leads and serves.
    fn may_lend(&self) -> bool {
        let leads = self.role() == Role::Primary && self.region().term() != 0;
        leads && !self.is_held() && !self.is_deposed()
    }

    /// Time has passed: read leases that are over hold no commit up any more.
    pub fn leases_lapse(&self) {
        self.shipping().leases_lapse(|| self.clock().boot_nanos());
    }

    /// Whether no read lease of this node is in force, or of others that it waits out.
    pub(crate) fn leases_are_over(&self) -> bool {
        let now = self.clock().boot_nanos();
        self.shipping().leases_are_over(now)
    }

    /// This node is about to lead. `others`: another node may have granted leases until now.
    pub(crate) fn before_leading(&self, others: bool) -> Result<()> {
        let shared = self.shared();
        let now = self.clock().boot_nanos();
        let (lends, lent) = (
            shared.options.leases.is_some(),
            shared.dir.has_lent().map_err(failed)?,
        );
        if lent {
            let until = shared.opened + GRANTED * stretch();
            self.shipping().wait_out_leases(until, now);
        }
        if lends && others {
            self.shipping().wait_out_leases(now + GRANTED, now);
        }
        if lends && !lent {
            shared.dir.lends().map_err(failed)?;
        }
        Ok(())
    }

    /// The node ends. One that grants no leases, and has waited out those of its earlier lives, forgets that there were any.
    pub(crate) fn forget_leases(&self) -> Result<()> {
        let shared = self.shared();
        if shared.options.leases.is_none() && self.role() == Role::Primary && self.leases_are_over()
        {
            shared.dir.lends_no_more().map_err(failed)?;
        }
        Ok(())
    }
}
