//! A worker: takes segments in the order of the log, installs what is safe, defers what is not.
//!
//! ```text
//! step:  the segment in hand, a slice of it ─▶ at its end the deferred units again ─▶ the next segment, or the deferred units again
//! ```
//! A *unit* is a write; with the policy transaction it is a whole transaction. Deferred units stand in the order of the log, by segment.
//! The worker's bound `c_i` is the position of the first unit that it has not executed, less one: all writes of a transaction share
//! a position, and the rest of them may be elsewhere (C5 §7.2). With nothing in hand it has no bound of its own, and what
//! counts is what has not been handed out.
//!
//! **Looking again is cheap.** A unit behind a deferred one of the same row (*lane*) cannot be safe either, and is passed over
//! without a look at the store: a small table remembers the lanes that are blocked. And who finds many units in a row that are not
//! safe leaves the rest: behind a worker that lost its CPU there may be thousands. The first unit is always looked at.
//!
//! **It always goes on.** The first write of the log that is not installed has everything before it installed, so `n` reaches its
//! `prev` and it is safe, wherever it waits. So somebody can always make a step.

use base::{Position, Result};
use env::fault;
use std::collections::VecDeque;
use std::sync::Arc;
use store::{Guard, pin};

use super::Policy;
use super::core::Core;
use super::install::Installer;
use super::scheduler::granule;
use super::segment::{Cursor, Segment, Shipped, Write};

/// Deferred units looked at in a row without one that can be executed, before the rest is left for the next time.
const FRUITLESS: usize = 256;

/// Lanes remembered as blocked.
const LANES: usize = 512;

/// Writes whose rows are asked for together.
const AHEAD: usize = 16;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something was done.
    Worked,
    /// What is in hand waits for other workers, or for a snapshot.
    Waiting,
    /// There is nothing to do.
    Idle,
}

/// A deferred unit: where it stands, and what it waits for (a lane, or the number of a transaction).
struct Unit {
    cursor: Cursor,
    waits: u64,
}

/// Deferred units of one segment.
struct Held {
    group: Arc<Shipped>,
    end: usize,
    generation: u64,
    units: Vec<Unit>,
}

struct Running {
    segment: Segment,
    cursor: Cursor,
    /// Deferred units of it, so far.
    units: Vec<Unit>,
}

/// The lanes of deferred units, as far as the table goes: a hit is sure, a miss is not.
struct Blocked([u64; LANES]);

impl Blocked {
    fn has(&self, lane: u64) -> bool {
        self.0[lane as usize % LANES] == lane
    }

    fn add(&mut self, lane: u64) {
        self.0[lane as usize % LANES] = lane;
    }
}

/// See the head of the file. Made by [`Core::worker`].
pub(crate) struct Worker {
    id: usize,
    hands: Installer,
    running: Option<Running>,
    held: VecDeque<Held>,
    blocked: Blocked,
    /// Records executed since they were last counted.
    settled: u64,
    /// Units deferred since they were last counted.
    deferred: u64,
    spare: Vec<Vec<Unit>>,
}

impl Worker {
    pub fn new(id: usize, hands: Installer) -> Worker {
        Worker {
            id,
            hands,
            running: None,
            held: VecDeque::new(),
            blocked: Blocked([0; LANES]),
            settled: 0,
            deferred: 0,
            spare: Vec::new(),
        }
    }

    /// Does a slice of work.
    pub fn step(&mut self, core: &Core) -> Result<Step> {
        let did = self.work(core);
        self.hands.flush();
        // Who waits for writes of this one looks again at the end of the segment; a worker that keeps to one transaction may itself
        // wait in the middle of it, for one who waits for its first half.
        let tell = self.running.is_none() || core.holds_back();
        core.settled(self.settled, self.hands.installed, self.deferred, tell);
        (self.settled, self.hands.installed, self.deferred) = (0, 0, 0);
        did
    }

    fn work(&mut self, core: &Core) -> Result<Step> {
        if self.running.is_some() {
            let more = match core.options.policy {
                Policy::Transaction => self.transactions(core)?,
                Policy::TransactionWorker => match self.one_transaction(core)? {
                    Some(more) => more,
                    None => return Ok(Step::Waiting),
                },
                _ => self.writes(core)?,
            };
            if !more {
                self.end_segment();
                self.again(core)?;
            }
            self.publish(core);
            return Ok(Step::Worked);
        }
        let progress = self.again(core)?;
        if progress {
            self.publish(core);
        }
        if let Some(segment) = core.take(self.id, self.first_held()) {
            self.running = Some(Running {
                cursor: segment.start,
                units: self.spare.pop().unwrap_or_default(),
                segment,
            });
            return Ok(Step::Worked);
        }
        self.publish(core);
        Ok(match (progress, self.held.is_empty()) {
            (true, _) => Step::Worked,
            (false, false) => Step::Waiting,
            (false, true) => Step::Idle,
        })
    }

    /// The first deferred unit's position.
    fn first_held(&self) -> Option<Position> {
        if fault::planted("replay.deferred_forgotten") {
            return None;
        }
        let held = self.held.front().map(|h| &h.units);
        let running = || self.running.as_ref().map(|r| &r.units);
        let first = held.or_else(running)?.first()?;
        Some(first.cursor.at)
    }

    /// Says how far this worker is.
    fn publish(&self, core: &Core) {
        let running = self.running.as_ref().map(|r| {
            // Before its first commit is opened the cursor stands at the one before.
            r.cursor.at.max(r.segment.first)
        });
        core.set_bound(self.id, self.first_held().or(running));
    }

    fn end_segment(&mut self) {
        let r = self.running.take().expect("a segment has ended");
        if r.units.is_empty() {
            self.spare.push(r.units);
            return;
        }
        self.held.push_back(Held {
            group: r.segment.group,
            end: r.segment.end,
            generation: r.segment.generation,
            units: r.units,
        });
    }

    /// A slice of the segment, write by write; whether there is more of it.
    fn writes(&mut self, core: &Core) -> Result<bool> {
        let r = self.running.as_mut().expect("there is a segment");
        self.hands.enter(r.segment.generation);
        let mut guard = pin();
        for done in 0..core.options.slice {
            if done.is_multiple_of(AHEAD) {
                self.hands
                    .ahead(r.cursor, &r.segment.group, r.segment.end, AHEAD, &guard)?;
            }
            let Some(w) = r.cursor.next(&r.segment.group, r.segment.end)? else {
                return Ok(false);
            };
            if !w.is_row() {
                self.settled += 1;
                continue;
            }
            let lane = lane(core, &w);
            if !self.blocked.has(lane) && attempt(core, &mut self.hands, &w, &mut guard)? {
                self.settled += 1;
                continue;
            }
            self.blocked.add(lane);
            self.deferred += 1;
            let cursor = r.cursor.back_over(&w);
            r.units.push(Unit {
                cursor,
                waits: lane,
            });
        }
        Ok(r.cursor.heads < r.segment.end)
    }

    /// A slice of the segment, transaction by transaction.
    fn transactions(&mut self, core: &Core) -> Result<bool> {
        let r = self.running.as_mut().expect("there is a segment");
        self.hands.enter(r.segment.generation);
        let mut guard = pin();
        let mut left = core.options.slice;
        while left > 0 {
            if r.cursor.left == 0 {
                if r.cursor.heads >= r.segment.end {
                    return Ok(false);
                }
                r.cursor.open(r.segment.group.heads())?;
                continue;
            }
            let unit = r.cursor;
            let (hands, group) = (&mut self.hands, &r.segment.group);
            left = left.saturating_sub(unit.left as usize);
            match predecessor(core, group, unit, r.segment.end)? {
                None => {
                    self.settled += u64::from(unit.left);
                    r.cursor = execute(core, hands, group, unit, r.segment.end, &mut guard)?;
                }
                Some(waits) => {
                    self.deferred += 1;
                    r.units.push(Unit {
                        cursor: unit,
                        waits,
                    });
                    while r.cursor.left > 0 && r.cursor.heads < r.segment.end {
                        r.cursor.step(group.heads())?;
                    }
                    r.cursor.left = 0;
                }
            }
        }
        Ok(r.cursor.heads < r.segment.end)
    }

    /// A slice of the one transaction in hand, as far as it is safe: `None` when it waits (C5 §5.1), also at its end for the snapshot
    /// (§5.2).
    fn one_transaction(&mut self, core: &Core) -> Result<Option<bool>> {
        let r = self.running.as_mut().expect("there is a segment");
        self.hands.enter(r.segment.generation);
        let mut guard = pin();
        for done in 0..core.options.slice {
            let before = r.cursor;
            let Some(w) = r.cursor.next(&r.segment.group, r.segment.end)? else {
                if r.segment.commits > 0 && !core.may_finish(r.cursor.number) {
                    return Ok(None);
                }
                core.finish_transaction(r.cursor.number, r.segment.commits > 0);
                return Ok(Some(false));
            };
            if w.is_row() && !attempt(core, &mut self.hands, &w, &mut guard)? {
                r.cursor = before;
                if done == 0 {
                    return Ok(None);
                }
                break;
            }
            self.settled += 1;
        }
        Ok(Some(true))
    }

    /// Looks at the deferred units again; whether one was executed.
    fn again(&mut self, core: &Core) -> Result<bool> {
        if self.held.is_empty() {
            return Ok(false);
        }
        self.blocked.0.fill(0);
        let (hands, blocked, settled) = (&mut self.hands, &mut self.blocked, &mut self.settled);
        let mut guard = pin();
        let mut failed = None;
        let (mut any, mut fruitless) = (false, 0);
        for held in &mut self.held {
            if fruitless > FRUITLESS {
                break;
            }
            hands.enter(held.generation);
            let (group, end) = (&held.group, held.end);
            held.units.retain_mut(|unit| {
                if failed.is_some() || fruitless > FRUITLESS {
                    return true;
                }
                match execute_again(core, hands, blocked, group, end, unit, &mut guard) {
                    Ok(0) => {
                        fruitless += 1;
                        true
                    }
                    Ok(n) => {
                        *settled += n;
                        (any, fruitless) = (true, 0);
                        false
                    }
                    Err(e) => {
                        failed = Some(e);
                        true
                    }
                }
            });
        }
        let spare = &mut self.spare;
        self.held.retain_mut(|h| {
            let keep = !h.units.is_empty();
            if !keep {
                spare.push(std::mem::take(&mut h.units));
            }
            keep
        });
        failed.map_or(Ok(any), Err)
    }
}

/// The records executed: all of the unit or none.
fn execute_again(
    core: &Core,
    hands: &mut Installer,
    blocked: &mut Blocked,
    group: &Shipped,
    end: usize,
    unit: &mut Unit,
    guard: &mut Guard,
) -> Result<u64> {
    if core.options.policy == Policy::Transaction {
        if !core.progress.has_finished(unit.waits) {
            return Ok(0);
        }
        if let Some(waits) = predecessor(core, group, unit.cursor, end)? {
            unit.waits = waits;
            return Ok(0);
        }
        execute(core, hands, group, unit.cursor, end, guard)?;
        return Ok(u64::from(unit.cursor.left));
    }
    if blocked.has(unit.waits) {
        return Ok(0);
    }
    let mut cursor = unit.cursor;
    let w = cursor.record(group)?;
    if attempt(core, hands, &w, guard)? {
        return Ok(1);
    }
    blocked.add(unit.waits);
    Ok(0)
}

/// The queue that a write stands in; never 0.
fn lane(core: &Core, w: &Write<'_>) -> u64 {
    match core.options.policy {
        Policy::Table | Policy::Page => {
            granule(core.options.policy, w.storage, w.key, core.options.granules) as u64 + 1
        }
        _ => w.hash.max(1),
    }
}

/// Installs the write if it is safe.
fn attempt(core: &Core, hands: &mut Installer, w: &Write<'_>, guard: &mut Guard) -> Result<bool> {
    match core.options.policy {
        Policy::Serial => {}
        Policy::Table | Policy::Page => {
            let slot = (lane(core, w) - 1) as usize;
            if !core.progress.is_due(slot, w.prev) {
                return Ok(false);
            }
            core.pay(guard);
            hands.install(w, guard)?;
            core.progress.passed(slot, w.prev);
            return Ok(true);
        }
        _ => {
            let installed = w.prev <= core.marks.applied.get().as_u64();
            if !installed && !hands.follows_newest(w, guard)? && !fault::planted("replay.thomas") {
                return Ok(false);
            }
        }
    }
    core.pay(guard);
    hands.install(w, guard)?;
    Ok(true)
}

/// The number of a transaction that this one has to wait for.
fn predecessor(core: &Core, group: &Shipped, unit: Cursor, end: usize) -> Result<Option<u64>> {
    let mut at = unit;
    while at.left > 0 && at.heads < end {
        let w = at.record(group)?;
        if w.is_row() && w.prev != 0 && !core.progress.has_finished(w.prev) {
            return Ok(Some(w.prev));
        }
    }
    Ok(None)
}

/// Installs the rest of the transaction that stands before `end`.
fn execute(
    core: &Core,
    hands: &mut Installer,
    group: &Shipped,
    unit: Cursor,
    end: usize,
    guard: &mut Guard,
) -> Result<Cursor> {
    let mut at = unit;
    while at.left > 0 && at.heads < end {
        let w = at.record(group)?;
        if w.is_row() {
            core.pay(guard);
            hands.install(&w, guard)?;
        }
    }
    if at.left == 0 {
        core.finish_transaction(at.number, true);
    }
    Ok(Cursor { left: 0, ..at })
}
