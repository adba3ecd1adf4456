//! Where a read stands and when it may read: the node's decision, from the read's arrival on. Facts in, the next step out.
//!
//! ```text
//! a read arrives ──▶ Placing::begin ──┬─▶ Newest | At(t)      its snapshot stands there; with a read lease: where it has received
//!                                     ├─▶ Leads(p)            wait until p is published, begin again
//!                                     ├─▶ HandedOver          refused
//!                                     └─▶ Fetch ──▶ Placing::ask, again after each fetch that landed or was lost
//! its snapshot stands at t ──▶ Checking::step ──┬─▶ Read      now
//!                                               ├─▶ Wait(p)   when p is visible here
//!                                               └─▶ Fetch     step again after each fetch that landed or was lost
//! ```
//! **A replica** asks its primary: `replica::read` says what a timestamp is worth, and what slots say of a row. **A primary** shows
//! everything itself, but for the time after its promotion: what was acknowledged before may not be published here yet, and reads wait
//! for that. **A node that has handed over** cannot know what its successor has committed, so it refuses every read that asks for more than
//! what is here. A read asks anew for the node's role at each step, since a promotion may come in the middle of it.
//!
//! | read | at a replica | after a promotion | after handing over |
//! |---|---|---|---|
//! | session, eventual | what is shown | what is shown | what is shown |
//! | bounded | what is shown, if that is new enough; else as strong | as strong | refused |
//! | strong | at a timestamp | when the primary leads | refused |
//! | policies without fetches | what is shown | as strong | refused |
//!
//! Left out on purpose: clock, locks, sockets; which connection a fetch takes; and when a read gives up, which is the session's.

use base::{Position, ReadPolicy, ReadWant};
use env::fault::planted;
use replica::read::{Ask, Check, Found, Level, Shown, Timestamps, Touch};

use crate::node::Node;
use crate::promote::Role;

/// What a read finds at its node.
#[derive(Clone, Copy, Debug)]
pub struct NodeView {
    pub role: Role,
    /// Of a primary that does not lead yet: what has to be published first.
    pub leads_after: Option<Position>,
    /// Everything up to here is shown.
    pub visible: Position,
}

impl Node {
    /// The node as a read finds it now.
    pub fn view(&self) -> NodeView {
        let role = self.role();
        let leads_after = match (role, self.region().term()) {
            (Role::Primary, 0) => self.region().waits_for(),
            _ => None,
        };
        NodeView {
            role,
            leads_after,
            visible: self.marks().published.get(),
        }
    }
}

/// Where a read stands, or what comes before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where the node stands; nothing more is to be asked.
    Newest,
    /// At this position or a later one that the node shows. [`Checking`] says when it may read.
    At(Position),
    /// When this is published here, the node leads: to be begun again then.
    Leads(Position),
    /// The node has handed over.
    HandedOver,
    /// A fetch has to land. `first`: nothing is under way that would serve this read, so one is due.
    Fetch { first: bool },
}

/// A read without a snapshot.
#[derive(Clone, Debug)]
pub struct Placing {
    want: ReadWant,
    /// The number of a fetch that serves this read alone.
    alone: Option<u64>,
}

impl Placing {
    pub fn new(want: ReadWant) -> Placing {
        Placing { want, alone: None }
    }

    /// What the node can say without the primary. `shown`: as of when what it shows is the newest there was. `leased`: what has come, if a read lease
    /// says now that this is all that was acknowledged ([`crate::Following::leased`]).
    pub fn begin(
        &self,
        node: &NodeView,
        shown: &Shown,
        leased: impl FnOnce() -> Option<Position>,
    ) -> Place {
        if !self.want.is_bound() {
            return Place::Newest;
        }
        if let Some(place) = self.not_following(node) {
            return place;
        }
        let Some(since) = self.want.since() else {
            return Place::Newest;
        };
        if since < self.want.arrived {
            match shown.find(self.want.arrived, since, || node.visible) {
                Found::Shown => return Place::Newest,
                Found::At(at) => return Place::At(at),
                Found::Nothing => {}
            }
        }
        let leased = match self.want.policy {
            ReadPolicy::Lease => leased(),
            _ => None,
        };
        leased.map_or(Place::Fetch { first: true }, Place::At)
    }

    /// A timestamp, or what brings one. The slots of `touches` come with a fetch that begins for this read. `brought`: what a connection
    /// had for it ([`Placing::known`]) that it does not use any more.
    pub fn ask(
        &mut self,
        node: &NodeView,
        brought: Option<Position>,
        timestamps: &mut Timestamps,
        touches: impl FnOnce() -> Vec<Touch>,
    ) -> Place {
        if let Some(place) = self.not_following(node) {
            return place;
        }
        if let Some(at) = brought {
            return Place::At(at);
        }
        if self.is_alone() {
            return self.ask_alone(timestamps);
        }
        match timestamps.ask(self.since(), touches) {
            Ask::Known(at) => Place::At(at),
            Ask::Joined => Place::Fetch { first: false },
            Ask::First => Place::Fetch { first: true },
        }
    }

    /// What these timestamps have for the read.
    pub fn known(&self, timestamps: &Timestamps) -> Option<Position> {
        match self.is_alone() {
            true => None,
            false => timestamps.known(self.since()),
        }
    }

    /// Whether the read wants a fetch that serves no other. Then all its steps are over the same timestamps.
    pub fn is_alone(&self) -> bool {
        self.want.policy == ReadPolicy::ReadWait
    }

    /// The read is given up: nothing is fetched for it alone.
    pub fn give_up(&mut self, timestamps: &mut Timestamps) {
        if let Some(number) = self.alone.take() {
            timestamps.forget(number);
        }
    }

    fn ask_alone(&mut self, timestamps: &mut Timestamps) -> Place {
        let brought = self.alone.map(|n| timestamps.take_alone(n));
        match brought {
            Some(None) => return Place::Fetch { first: false },
            Some(Some(Ok(at))) => {
                self.alone = None;
                return Place::At(at);
            }
            // It was lost, or there was none.
            Some(Some(Err(()))) | None => {}
        }
        self.alone = Some(timestamps.ask_alone());
        Place::Fetch { first: true }
    }

    fn since(&self) -> u64 {
        self.want.since().unwrap_or(self.want.arrived)
    }

    fn not_following(&self, node: &NodeView) -> Option<Place> {
        match (node.role, node.leads_after) {
            (Role::Replica, _) => None,
            (Role::Sealed, _) => Some(Place::HandedOver),
            (Role::Primary, Some(at)) if !planted("reading.leads_at_once") => {
                Some(Place::Leads(at))
            }
            (Role::Primary, _) => Some(Place::Newest),
        }
    }
}

/// Whether a read may read at its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Now, and why.
    Read(Level),
    /// When this is visible, and what is waited for.
    Wait(Position, Level),
    /// Slots have to be fetched. `idle`: two fetches did not bring them, so there is no hurry with the next.
    Fetch { idle: bool },
}

/// A read that stands at a position.
#[derive(Clone, Debug)]
pub struct Checking {
    at: Position,
    touches: Vec<Touch>,
    tracked: bool,
    by_lease: bool,
    fetches: u64,
}

impl Checking {
    /// `touches`: what it reads, for a read that is tracked.
    pub fn new(want: &ReadWant, at: Position, touches: impl FnOnce() -> Vec<Touch>) -> Checking {
        let tracked = want.is_tracked();
        Checking {
            at,
            touches: if tracked { touches() } else { Vec::new() },
            tracked,
            by_lease: want.policy == ReadPolicy::Lease,
            fetches: 0,
        }
    }

    /// Whether what has come to this node may say when it reads ([`crate::Following::check_received`]).
    pub fn is_by_lease(&self) -> bool {
        self.by_lease
    }

    /// Whether nothing has to be waited for, whatever is read.
    pub fn is_shown(&self, node: &NodeView) -> bool {
        self.at <= node.visible
    }

    /// What it reads, if that is compared with slots.
    pub fn touches(&self) -> &[Touch] {
        &self.touches
    }

    /// Where its snapshot stands.
    pub fn at(&self) -> Position {
        self.at
    }

    /// `here`: what words say that can be read in place; else the timestamps are asked. `node` is not newer than the call.
    pub fn step(
        &mut self,
        node: &NodeView,
        here: Option<Check>,
        timestamps: &mut Timestamps,
    ) -> May {
        if self.is_shown(node) {
            return May::Read(Level::Visible);
        }
        if !self.tracked || node.role != Role::Replica {
            return match planted("reading.untracked_at_once") {
                true => May::Read(Level::Visible),
                false => May::Wait(self.at, Level::Visible),
            };
        }
        let check = here.unwrap_or_else(|| timestamps.check(self.at, node.visible, &self.touches));
        match check {
            Check::Read(level) => May::Read(level),
            Check::Wait(to, level) => May::Wait(to, level),
            Check::Missing => {
                self.fetches += 1;
                May::Fetch {
                    idle: self.fetches > 2,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
