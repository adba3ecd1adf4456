//! Where the reads of a session stand at a node that follows another: on which state, and what they wait for.
//!
//! ```text
//! message comes      arrived          its stamp
//! statement          place            a position for its snapshot, if it takes one (READ COMMITTED: each; else the transaction's first):
//!                                     what the settings ask of the engine (`read_point`), and never behind the session or its token;
//!                                     the schema there
//!                    may_read         what the plan touches at that position is here, or is waited for
//! names unknown      renew_schema     plans are made with the schema that this node shows; one that fails is made again with the newest
//! REPEATABLE READ    stand_held       that may write: the position is where the primary keeps a snapshot for it (`hold`)
//! Parse              newest_schema    and one whose columns are told before it runs is made with the newest
//! ```
//! The waits are futures of the session. They end by themselves, or by cancel, `statement_timeout`, or `canon.read_timeout`, after
//! which `canon.stale_action` says what is done. At a primary none of this runs: it is two questions per statement, and a wait (`settle`) only
//! while it has just been promoted: for its first lease, and until what the old one acknowledged is published here. The role is asked again after these waits.
//!
//! A statement that reads nothing that nodes share (`SELECT 1`, `pg_stat_…`) asks for nothing, unless it is the first of a transaction with
//! one snapshot. So health checks work while the primary is away.
//!
//! Left out on purpose: running a statement elsewhere. [`Exit::Elsewhere`] says that it should be, before anything of it has run.

use super::Session;
use super::exit::{Exit, too_stale};
use super::handle::Waits;
use super::run::interruption;
use super::settings::StaleAction;
use super::token::Token;
use crate::engine::Engine;
use crate::plan::Prepared;
use crate::reading::{Consistency, ReadPoint, ReadPolicy, ReadWant, Reads, Touch, Waiting};
use base::{CommitWait, Error, Position, Result, Value};
use futures::future::{Either, select};
use std::pin::pin;
use txn::Isolation;

/// How often a snapshot is asked of the primary that this node is then found to have gone past. Once in some hundred times it has.
const MOST_HOLDS: u32 = 8;

/// What a session remembers of its reads.
#[derive(Default)]
pub(super) struct Reading {
    /// The stamp of the message that is served; none: nobody says, so a read arrives when it asks.
    arrived: Option<u64>,
    /// The answer to the last question of this kind. Good for all statements of one message.
    found: Option<(ReadWant, Position)>,
    /// For the message of this stamp the transaction's next snapshot was taken, or may be taken of what is shown here.
    placed: Option<u64>,
    /// Everything up to it is known to be published at the primary: replies do not wait for it here.
    pub known: Position,
    /// When the statement's patience ends; 0: it has not waited yet.
    deadline: u64,
    /// The last token that was found to stand for something that was published.
    vouched: Option<Token>,
}

impl Reading {
    /// A statement begins.
    pub fn begin(&mut self) {
        self.deadline = 0;
    }
}

impl<E: Engine> Session<E> {
    /// The stamp for messages that are taken off the wire now.
    pub fn arrival(&self) -> u64 {
        self.shared.engine.arrival()
    }

    /// The message that is served next was taken off the wire at this stamp; none: reads arrive when they ask.
    #[inline]
    pub fn arrived(&mut self, stamp: Option<u64>) {
        self.reading.arrived = stamp;
    }

    /// Whether reads here have to ask where they may stand.
    #[inline]
    pub fn follows(&self) -> bool {
        self.shared.engine.follows()
    }

    /// What reads of this session want now.
    fn want(&mut self) -> ReadWant {
        let arrived = self.reading.arrived;
        let hot = &self.state.settings.get_mut().hot;
        ReadWant {
            consistency: hot.consistency,
            policy: hot.read_policy,
            arrived: arrived.unwrap_or_else(|| self.shared.engine.arrival()),
        }
    }

    /// Whether portals that are bound here may have to be run at the primary, because they are not fresh in time or turn out to write:
    /// their Bind is to be kept.
    #[inline]
    pub fn may_send_portals(&mut self) -> bool {
        self.forwards()
    }

    /// What a read may not be behind: the session's token; what it has seen, if it wants that.
    fn floor(&mut self, want: &ReadWant) -> Position {
        let token = self.state.settings.get_mut().hot.min_token;
        let token = token.map_or(Position::ZERO, |t| t.position);
        let any = want.consistency == Consistency::Eventual
            || matches!(want.policy, ReadPolicy::Stale | ReadPolicy::CommitWait);
        if any {
            return token;
        }
        token.max(self.state.seen.get())
    }

    /// 55000 for what would read in a transaction that stands before its session's token, which was set since.
    #[inline]
    pub(super) fn stands_at_its_token(&mut self) -> Result<()> {
        let Some(token) = self.state.settings.get_mut().hot.min_token else {
            return Ok(());
        };
        let txn = self.block.txn.as_ref();
        let one = txn.filter(|t| t.isolation() != Isolation::ReadCommitted);
        match one.and_then(|t| t.snapshot()) {
            Some(at) if at < token.position => Err(token.after_the_snapshot()),
            _ => Ok(()),
        }
    }

    /// Refuses a token that does not stand for anything: 22023 and 55000, see [`Token::check`] and [`Token::from_the_future`]. What this
    /// node shows it knows; of what it does not, and of terms that it has not heard of, the primary is asked, at any level: a token is
    /// of what was published before, so a fetch that begins after it came brings that, or more. While the primary cannot be asked this
    /// waits, unless what the token stands for comes by itself.
    async fn vouch(&mut self, t: Token, want: &ReadWant) -> Result<(), Exit> {
        let engine = self.shared.engine.clone();
        let later = t.is_of_a_later_term(&engine.history());
        let shown = || t.position <= engine.published_position();
        if later || !(shown() || self.reading.vouched == Some(t)) {
            let asks = ReadWant {
                consistency: Consistency::Strong,
                policy: ReadPolicy::Tracker,
                arrived: want.arrived,
            };
            let mut found = engine.read_point(&asks, &Vec::new);
            loop {
                match found {
                    ReadPoint::Wait(ready) => {
                        // The log alone does not say of a term that is not known.
                        let shown: Waiting<()> = match later {
                            true => Box::pin(std::future::pending()),
                            false => engine.published(CommitWait::Published(t.position)),
                        };
                        let either: Waiting<ReadPoint> = Box::pin(async move {
                            match select(shown, ready).await {
                                Either::Left((r, _)) => r.map(|()| ReadPoint::Newest),
                                Either::Right((r, _)) => r,
                            }
                        });
                        found = self.wait_fresh(either).await?;
                    }
                    ReadPoint::Newest => break,
                    ReadPoint::At(at) => {
                        self.reading.found = Some((asks, at));
                        if t.position > at && !shown() {
                            t.check(&engine.history())?;
                            return Err(t.from_the_future().into());
                        }
                        break;
                    }
                }
            }
        }
        t.check(&engine.history())?;
        self.reading.vouched = Some(t);
        Ok(())
    }

    /// The position that a snapshot taken now has to reach; none: it is as good as any.
    async fn point(
        &mut self,
        want: &ReadWant,
        reads: &Reads<'_>,
    ) -> Result<Option<Position>, Exit> {
        if let Some(t) = self.state.settings.get_mut().hot.min_token {
            self.vouch(t, want).await?;
        }
        let floor = self.floor(want);
        let mut found = match self.reading.found {
            Some((w, at)) if w == *want && want.policy != ReadPolicy::ReadWait => ReadPoint::At(at),
            _ => self.shared.engine.read_point(want, reads),
        };
        loop {
            match found {
                ReadPoint::Wait(ready) => found = self.wait_fresh(ready).await?,
                ReadPoint::Newest => {
                    let here = self.shared.engine.published_position();
                    return Ok((floor > here).then_some(floor));
                }
                ReadPoint::At(at) => {
                    self.reading.found = Some((*want, at));
                    return Ok(Some(at.max(floor)));
                }
            }
        }
    }

    /// At a node that has become the primary just now: waits until it shows what was acknowledged before, if reads are to see that.
    #[inline]
    pub(super) async fn settle(&mut self) -> Result<()> {
        let Some(ready) = self.shared.engine.settling() else {
            return Ok(());
        };
        let level = self.state.settings.get_mut().hot.consistency;
        let ready = match level {
            Consistency::Strong | Consistency::Bounded(_) => ready,
            Consistency::Session | Consistency::Eventual => {
                let want = self.want();
                let floor = self.floor(&want);
                if floor <= self.shared.engine.published_position() {
                    return Ok(());
                }
                self.shared.engine.published(CommitWait::Published(floor))
            }
        };
        self.wait_fresh(ready).await.map_err(Exit::here)
    }

    /// Whether the next snapshot got its place while this node followed.
    #[inline]
    pub(super) fn is_placed(&self) -> bool {
        self.reading.placed.is_some()
    }

    /// Gives the next statement its snapshot, if it takes one.
    pub(super) async fn place(&mut self) -> Result<(), Exit> {
        if self.block.kind != super::block::Kind::None && self.certifies(true) {
            return self.place_whole().await;
        }
        self.place_to_read(&Vec::new).await
    }

    /// The same for a transaction of a site that may change rows: it stands at what is shown here as a whole.
    async fn place_whole(&mut self) -> Result<(), Exit> {
        let want = self.want();
        let txn = self.block.txn.as_deref();
        let wants = txn.is_some_and(|t| t.wants_snapshot());
        if self.reading.placed == Some(want.arrived) || !wants {
            return Ok(());
        }
        if let Some(at) = self.point(&want, &Vec::new).await? {
            let shown = self.shared.engine.published(CommitWait::Published(at));
            self.wait_fresh(shown).await?;
            self.reading.known = self.reading.known.max(at);
        }
        let txn = self.block.txn.as_mut().expect("looked at above");
        txn.look_at_newest();
        self.reading.placed = Some(want.arrived);
        Ok(())
    }

    /// The same, where it is known what will be read.
    async fn place_to_read(&mut self, reads: &Reads<'_>) -> Result<(), Exit> {
        let want = self.want();
        let Some(txn) = &mut self.block.txn else {
            return Ok(());
        };
        if self.reading.placed == Some(want.arrived) {
            return Ok(());
        }
        // That was for a message that came before this one.
        txn.stand_nowhere();
        if !txn.wants_snapshot() {
            return Ok(());
        }
        let at = match self.stand_held(&want).await? {
            Some(at) => at,
            None => {
                let Some(at) = self.point(&want, reads).await? else {
                    return Ok(());
                };
                let here = self.shared.engine.published_position();
                let txn = self.block.txn.as_mut().expect("looked at above");
                if at <= here {
                    txn.look_at_newest();
                    self.reading.placed = Some(want.arrived);
                    self.reading.known = self.reading.known.max(at);
                    return Ok(());
                }
                txn.set_read_position(at)
            }
        };
        let here = self.await_readable(at, &[Touch::Catalog], &want).await;
        let txn = self.block.txn.as_mut().expect("looked at above");
        if let Err(e) = here {
            // A savepoint may keep the transaction: what it reads next is not to be of a schema that is not known to be the one there.
            txn.stand_nowhere();
            return Err(e);
        }
        // Whether or not it had to wait: a change may have come since the transaction took its place.
        txn.look_again();
        // Not before it is known that there is such a position: a token may lie.
        self.reading.placed = Some(want.arrived);
        let known = self.seen_of(at, &want);
        self.reading.known = self.reading.known.max(known);
        Ok(())
    }

    /// Up to where a read at `at` has seen something, once it may read. With a lease `at` is what has come here, and may not be published. Nothing of what
    /// is read changed above what is shown, so nothing above it is seen.
    fn seen_of(&self, at: Position, want: &ReadWant) -> Position {
        match want.policy {
            ReadPolicy::Lease => at.min(self.shared.engine.published_position()),
            _ => at,
        }
    }

    /// A block at REPEATABLE READ that may write, and then goes on at the primary: stands where the primary keeps a snapshot for it, if it
    /// does.
    async fn stand_held(&mut self, want: &ReadWant) -> Result<Option<Position>, Exit> {
        let kind = self.block.kind;
        let txn = self.block.txn.as_ref().expect("looked at above");
        let keeps = kind != super::block::Kind::None
            && txn.isolation() == Isolation::RepeatableRead
            && !txn.is_read_only();
        if !keeps || !self.forwards() {
            return Ok(None);
        }
        if let Some(t) = self.state.settings.get_mut().hot.min_token {
            self.vouch(t, want).await?;
        }
        let floor = self.floor(want);
        for _ in 0..MOST_HOLDS {
            let Some(asked) = self.shared.engine.hold(want) else {
                break;
            };
            let Some(hold) = self.wait_fresh(asked).await? else {
                break;
            };
            let at = hold.position();
            let txn = self.block.txn.as_mut().expect("looked at above");
            if at >= floor && txn.stand_held(hold) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// The same for the statement of this plan. One that reads nothing that nodes share needs none, where it does not choose for others.
    pub(super) async fn place_for(&mut self, p: &Prepared, params: &[Value]) -> Result<(), Exit> {
        let changes = !p.read_only || p.locks_rows;
        let block = self.block.kind != super::block::Kind::None;
        if (changes || block) && self.certifies(block) {
            return self.place_whole().await;
        }
        if changes {
            return Ok(());
        }
        let level = self.block.txn.as_ref().map(|t| t.isolation());
        let for_others =
            self.block.kind != super::block::Kind::None && level != Some(Isolation::ReadCommitted);
        if !for_others && p.touches().is_empty() {
            return Ok(());
        }
        self.place_to_read(&|| p.touching(params)).await
    }

    /// The statement has taken its snapshot.
    pub(super) fn placed(&mut self) {
        self.reading.placed = None;
    }

    /// Waits until what the plan reads with these parameters is here, at the statement's snapshot.
    pub(super) async fn may_read(&mut self, p: &Prepared, params: &[Value]) -> Result<(), Exit> {
        let Some(at) = self.block.txn.as_ref().and_then(|t| t.snapshot()) else {
            return Ok(());
        };
        let mut seen = at;
        if at > self.shared.engine.published_position() {
            let (touches, want) = (p.touching(params), self.want());
            if !touches.is_empty() {
                self.await_readable(at, &touches, &want).await?;
            }
            seen = self.seen_of(at, &want);
        }
        // Now, and not when the position was chosen: a session is not bound to what it did not get to see.
        self.state.saw(seen);
        Ok(())
    }

    /// Whether it had to wait.
    async fn await_readable(
        &mut self,
        at: Position,
        touches: &[Touch],
        want: &ReadWant,
    ) -> Result<bool, Exit> {
        if at <= self.shared.engine.published_position() {
            return Ok(false);
        }
        match self.shared.engine.readable(at, touches, want) {
            None => Ok(false),
            Some(ready) => self.wait_fresh(ready).await.map(|()| true),
        }
    }

    /// After something was not found in the schema: waits for the schema that a read now would see. Whether it is worth another look.
    pub(super) async fn renew_schema(&mut self, why: &Error) -> Result<bool, Exit> {
        let code = why.code();
        let code = code.code();
        let label = why.fields().routine == crate::types::text::ENUM_IN;
        let of_schema = code.starts_with("42") || code.starts_with("3F") || label;
        if !self.follows() || !of_schema {
            return Ok(false);
        }
        if self.block.kind == super::block::Kind::Failed {
            return Ok(false);
        }
        let waited = self.newest_schema().await;
        waited.map_err(|e| self.or_elsewhere(e))?;
        // Also when there was nothing to wait for: what was missing may have come since it was looked for.
        Ok(true)
    }

    /// For what has not begun: the server takes it to the primary, where that can be.
    pub(super) fn or_elsewhere(&mut self, e: Exit) -> Exit {
        match self.forwards() {
            true => e,
            false => e.here().into(),
        }
    }

    /// Waits for the schema that a read now would see, and for no more.
    pub(super) async fn newest_schema(&mut self) -> Result<(), Exit> {
        if self.block.txn.is_some() {
            return self.place().await;
        }
        let want = self.want();
        if let Some(at) = self.point(&want, &Vec::new).await? {
            self.await_readable(at, &[Touch::Catalog], &want).await?;
        }
        Ok(())
    }

    /// Waits, for as long as the session's patience lasts.
    pub(super) async fn wait_fresh<T>(&mut self, mut ready: Waiting<T>) -> Result<T, Exit> {
        let hot = &self.state.settings.get_mut().hot;
        let (limit, action) = (hot.read_timeout, hot.stale_action);
        if let (0, Some(t)) = (self.reading.deadline, limit) {
            let t = (t.as_millis() as u64).max(1);
            self.reading.deadline = self.shared.host.monotonic_millis() + t;
        }
        let mut deadline = limit.map_or(0, |_| self.reading.deadline);
        loop {
            self.handle.begin_wait(deadline, Waits::Freshness);
            let done = {
                let interrupted = pin!(self.handle.interruption());
                match select(&mut ready, interrupted).await {
                    Either::Left((r, _)) => Some(r),
                    Either::Right(_) => None,
                }
            };
            self.handle.end_wait();
            if let Some(r) = done {
                return Ok(r?);
            }
            if let Some(why) = self.handle.interrupted() {
                return Err(interruption(why).into());
            }
            match action {
                StaleAction::Wait => deadline = 0,
                StaleAction::Forward => {
                    return Err(Exit::Elsewhere);
                }
                StaleAction::Error => return Err(too_stale().into()),
            }
        }
    }
}
