//! A session at a replica whose work goes on at the primary.
//!
//! ```text
//! at the replica (here, place.rs)                        at the primary (adopt.rs)
//!   a statement that may not run here: Exit::Forward
//!   set_out: session, statements, sequences,       ──▶   adopt: the same session, in a transaction that has
//!            transaction with its footprint              read what it had read
//!                        every message as it is    ──▶   run
//!                                replies as they are  ◀──
//!   come_back: what has changed in the session     ◀──   returned, before each ReadyForQuery outside of a transaction
//! ```
//! The server carries messages and replies; what they mean for the session is decided here. A transaction moves once, and all of it
//! that follows runs there, so that it sees its own writes. (Nothing is logged before commit, so the replica could not show them:
//! the shortcut of SCC §4.4 does not apply.) What it has changed at a site goes along. Cursors and named portals that were opened before stay here, with the snapshot that they took
//! when they were declared or bound.
//!
//! What is sent is what the other end does not know yet ([`Known`]): a connection that serves the same session again is told of
//! changes only.
//!
//! Left out on purpose: a ROLLBACK TO ends younger cursors here when ReadyForQuery comes, not in the middle of a pipeline. What is seen to lock or
//! write only when it runs (such functions inside of views) is 25006 where rows of it have left.

mod adopt;
mod bytes;
mod place;
mod site;

pub use adopt::Adopted;
pub(super) use bytes::malformed;

use super::Session;
use super::block::Kind;
use super::client::TxnStatus;
use super::exit::{Exit, at_primary_only};
use super::extended::PortalKind;
use super::level::Level;
use super::notify::Listening;
use super::roles::{Meaning, is_of_role};
use super::settings::Carried;
use super::utility::Modes;
use crate::catalog::PreparedRow;
use crate::engine::Engine;
use base::{Error, Oid, Position, RelId, Result, Work};
use bytes::{Get, Put};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::RemoteSnapshot;

/// The kinds of work that an adoption begins.
const NOTHING: u8 = 0;
const IMPLICIT: u8 = 1;
const EXPLICIT: u8 = 2;

/// What the session has at the primary: something that ties it to its connection there; temporary tables.
const TIED: u8 = 1;
const ROOTED: u8 = 2;

/// Milliseconds that the primary gets beyond a statement's time limit.
const GRACE: u64 = 2000;

/// How an adoption begins: by forgetting who the session was, as the one that it is, or with no more than a new token. The session's
/// number follows: what goes on must be the session that the other end has.
const ANEW: u8 = 0;
const AGAIN: u8 = 1;
const SAME: u8 = 2;

/// A statement as it was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub text: Arc<str>,
    pub types: Box<[Oid]>,
    pub from_sql: bool,
}

/// What the other end knows of a session.
#[derive(Default)]
pub struct Known {
    /// The session's number, by chance; 0: nothing was said, and the other end may be somebody else.
    number: u64,
    session: Vec<u8>,
    sequences: Vec<u8>,
    statements: HashMap<Box<str>, Source>,
    /// The state of the session's statements that those are.
    version: u64,
}

/// This session's part in forwarding.
#[derive(Default)]
pub struct Forward {
    /// There is a way to the primary (the server's to say).
    pub(super) way: bool,
    /// The transaction runs at the primary.
    pub(super) moved: bool,
    /// The session holds advisory locks, cursors WITH HOLD or temporary tables there, on the connection that it has: all that it runs goes there.
    pub(super) pinned: bool,
    /// What ties it is a temporary table, so that names mean what they mean there.
    rooted: bool,
    /// What is left of a text whose first statements have run here.
    pub(super) rest: Option<String>,
    /// Statements prepared at the other node, not yet made here.
    pub(super) elsewhere: HashMap<Box<str>, Source>,
    /// Raised by each change of the prepared statements.
    pub(super) version: u64,
    /// What the primary keeps for the transaction that is on its way there.
    pub(super) hold: Option<Box<dyn RemoteSnapshot>>,
    /// This session is another's, at the primary.
    pub(super) adopted: Option<Box<Adopted>>,
}

/// The statement must run at the primary.
fn to_primary() -> Exit {
    Exit::Forward(at_primary_only("the statement"))
}

/// The kind of [`Listening::Above`]. A build that does not know the kind takes it for an UNLISTEN, of a channel that no session has.
const ABOVE: u8 = 3;

fn read_listening(r: &mut Get<'_>) -> Result<Listening> {
    let (kind, channel) = (r.u8()?, r.text()?);
    Ok(match kind {
        0 => Listening::Nothing,
        1 => Listening::To(channel.into()),
        ABOVE => {
            let number = channel.get(1..).and_then(|n| n.parse().ok());
            Listening::Above(Position::from_u64(number.unwrap_or(0)))
        }
        _ => Listening::Not(channel.into()),
    })
}

fn put_listening(b: &mut Put, l: &Listening) {
    match l {
        Listening::Nothing => b.u8(0).text(""),
        Listening::To(c) => b.u8(1).text(c),
        Listening::Not(c) => b.u8(2).text(c),
        Listening::Above(p) => b.u8(ABOVE).text(&format!("\u{1}{}", p.as_u64())),
    };
}

fn read_statements(r: &mut Get<'_>) -> Result<(Vec<String>, Vec<(String, Source)>)> {
    let gone = r.list(|r| r.text().map(str::to_owned))?;
    let added = r.list(|r| {
        let name = r.text()?.to_owned();
        let text: Arc<str> = r.text()?.into();
        let types = r.list(Get::u32)?.into();
        let from_sql = r.u8()? == 1;
        let source = Source {
            text,
            types,
            from_sql,
        };
        Ok((name, source))
    })?;
    Ok((gone, added))
}

/// Who a session is and its settings, as they were when the transaction began.
struct Bearer {
    login: Oid,
    settings: Vec<Carried>,
    roles: Vec<Meaning>,
}

fn read_bearer(b: &[u8]) -> Result<Bearer> {
    let mut r = Get(b);
    let login = r.u32()?;
    let settings = r.list(|r| {
        let mut text = || r.text().map(str::to_owned);
        Ok((text()?, text()?, text()?))
    })?;
    let roles = read_roles(&mut r)?;
    r.end()?;
    Ok(Bearer {
        login,
        settings,
        roles,
    })
}

fn read_roles(r: &mut Get<'_>) -> Result<Vec<Meaning>> {
    r.list(|r| Ok((r.text()?.to_owned(), r.u32()?)))
}

fn put_roles(b: &mut Put, roles: &[Meaning]) {
    b.u32(roles.len() as u32);
    for (name, role) in roles {
        b.text(name).u32(*role);
    }
}

/// Isolation levels, each by its number between nodes.
const LEVELS: [Option<Level>; 5] = [
    None,
    Some(Level::ReadCommitted),
    Some(Level::RepeatableRead),
    Some(Level::Serializable),
    Some(Level::ReadUncommitted),
];

impl Modes {
    fn put(self, b: &mut Put) {
        let is = |l: &Option<Level>| *l == self.isolation;
        let level = LEVELS.iter().position(is).expect("each") as u8;
        let on = |o: Option<bool>| o.map_or(0, |x| 1 + u8::from(x));
        b.u8(level).u8(on(self.read_only)).u8(on(self.deferrable));
    }

    fn read(r: &mut Get<'_>) -> Result<Modes> {
        let level = LEVELS.get(usize::from(r.u8()?)).ok_or_else(malformed)?;
        let on = |n| match n {
            0 => None,
            n => Some(n == 2),
        };
        Ok(Modes {
            isolation: *level,
            read_only: on(r.u8()?),
            deferrable: on(r.u8()?),
        })
    }
}

impl<E: Engine> Session<E> {
    /// The server can reach the primary for this session.
    pub fn allow_forwarding(&mut self) {
        self.forward.way = true;
    }

    /// Whether what may not run here goes to the primary.
    pub fn forwards(&mut self) -> bool {
        self.forward.way
            && self.state.settings.get_mut().hot.forward
            && !self.shared.engine.runs(Work::Write)
    }

    /// Whether the transaction runs at the primary.
    pub fn has_moved(&self) -> bool {
        self.forward.moved
    }

    /// A token to ask with, for the transaction of this number that begins now: where it can commit at the earliest, and the number.
    pub fn token_text(&self, number: u64) -> String {
        let after = self.shared.engine.published_position();
        format!("{}-{number}", after.as_u64())
    }

    /// Whether the session holds something at the primary that the connection there must not be given away with.
    pub fn is_pinned(&self) -> bool {
        self.forward.pinned
    }

    fn tied_by(&mut self, ties: u8) {
        self.forward.pinned = ties & TIED != 0;
        self.forward.rooted = ties & ROOTED != 0;
    }

    /// Whether a text is to be understood at the primary: the session has temporary tables there, and it is not about a cursor here.
    pub fn names_are_there(&self, sql: &str) -> bool {
        self.forward.rooted && !self.is_about_local_cursor(sql)
    }

    /// 57P01 for a session that holds locks at a primary that is lost.
    pub fn lost_locks(&self) -> Error {
        super::advisory::lost_locks()
    }

    /// A number for a transaction that nobody can guess, never 0.
    pub fn token(&self) -> u64 {
        let mut b = [0; 8];
        self.shared.host.random(&mut b);
        (u64::from_le_bytes(b) >> 1).max(1)
    }

    /// See [`Bearer`].
    fn session_bytes(&mut self) -> Vec<u8> {
        let list = self.state.settings.get_mut().carried();
        let mut b = Put::default();
        b.u32(self.state.authenticated).u32(list.len() as u32);
        for (name, base, value) in &list {
            b.text(name).text(base).text(value);
        }
        let of_roles = list.iter().filter(|c| is_of_role(&c.0));
        let names = of_roles.flat_map(|c| [&*c.1, &*c.2]);
        put_roles(&mut b, &self.state.roles.get_mut().meanings(names));
        b.0
    }

    /// Every prepared statement, the unnamed one under "".
    fn sources(&self) -> HashMap<Box<str>, Source> {
        let mut all = self.forward.elsewhere.clone();
        let named = self.statements.iter().map(|(n, s)| (&**n, s));
        let unnamed = self.unnamed.iter().map(|s| ("", s));
        for (name, st) in named.chain(unnamed) {
            let rows = self.state.prepared.borrow();
            let row = rows.iter().find(|r| *r.name == *name);
            let (text, types) = st.source();
            let source = Source {
                text,
                types,
                from_sql: row.is_some_and(|r| r.from_sql),
            };
            all.insert(name.into(), source);
        }
        all
    }

    /// What has changed in the prepared statements since the other end was told.
    fn put_statements(&self, known: &mut Known, b: &mut Put) {
        if std::mem::replace(&mut known.version, self.forward.version) == self.forward.version {
            b.u32(0).u32(0);
            return;
        }
        let known = &mut known.statements;
        let now = self.sources();
        let gone: Vec<_> = known.keys().filter(|n| !now.contains_key(*n)).collect();
        b.u32(gone.len() as u32);
        gone.iter().for_each(|n| _ = b.text(n));
        let new: Vec<_> = now
            .iter()
            .filter(|(n, s)| known.get(*n) != Some(s))
            .collect();
        b.u32(new.len() as u32);
        for (name, s) in new {
            b.text(name).text(&s.text).u32(s.types.len() as u32);
            s.types.iter().for_each(|t| _ = b.u32(*t));
            b.u8(u8::from(s.from_sql));
        }
        *known = now;
    }

    /// Takes statements that were prepared elsewhere, and forgets those that are gone.
    fn take_statements(&mut self, gone: &[String], added: Vec<(String, Source)>) {
        for name in gone {
            self.forget(name);
        }
        for (name, source) in added {
            self.forget(&name);
            if !name.is_empty() {
                self.state.prepared.get_mut().push(PreparedRow {
                    name: name.clone(),
                    statement: source.text.to_string(),
                    prepare_time: self.state.statement_start.get(),
                    parameter_types: source.types.to_vec(),
                    from_sql: source.from_sql,
                });
            }
            self.forward.elsewhere.insert(name.into(), source);
            self.forward.version += 1;
        }
    }

    /// Makes the statement of this name here, if it was prepared elsewhere.
    pub(super) fn fetch_statement(&mut self, name: &str) -> Result<()> {
        let Some(source) = self.forward.elsewhere.remove(name) else {
            return Ok(());
        };
        let version = self.forward.version;
        let rows = self.state.prepared.get_mut();
        let row = rows.iter().position(|r| *r.name == *name);
        let row = row.map(|at| rows.remove(at));
        let made = super::parse::parse_one(&source.text)
            .and_then(|parsed| self.statement(parsed, &source.types))
            .and_then(|st| self.keep(name, st, source.from_sql));
        if made.is_err() {
            self.forward.elsewhere.insert(name.into(), source);
            self.state.prepared.get_mut().extend(row);
        }
        // It is the same statement.
        self.forward.version = version;
        made
    }

    /// What the primary must know before the next message, which begins a transaction there or (`SAME`) goes on with one. The
    /// transaction that ran here ends with it; cursors keep its snapshot. After an error `known` is as it was.
    pub fn set_out(&mut self, known: &mut Known, token: u64) -> Result<Vec<u8>> {
        let own = self.own_changes()?;
        self.promise_portals()?;
        let reads = match &self.block.txn {
            Some(t) if self.block.kind != Kind::None => t.reads()?,
            _ => None,
        };
        let mut b = Put::default();
        let how = match known.number {
            0 => ANEW,
            _ => AGAIN,
        };
        if how == ANEW {
            known.number = self.token();
        }
        b.u64(token).u8(how).u64(known.number);
        let session = self.session_bytes();
        b.option((known.session != session).then_some(&session[..]));
        known.session = session;
        let sequences = self.state.sequence_bytes();
        b.option((known.sequences != sequences).then_some(&sequences[..]));
        known.sequences = sequences;
        self.put_statements(known, &mut b);
        let kind = match self.block.kind {
            Kind::None => NOTHING,
            Kind::Implicit => IMPLICIT,
            Kind::Explicit | Kind::Failed => EXPLICIT,
        };
        b.u8(kind);
        if kind == NOTHING {
            self.abandon();
            return Ok(b.0);
        }
        let blocks = &self.shared.counters.forwarded_blocks;
        blocks.fetch_add(1, Ordering::Relaxed);
        let reads = reads.map(|r| r.encode_reads());
        let (mut modes, level) = (self.block.modes(), self.level());
        if let Some(t) = &self.block.txn {
            // What the settings said when it began: they may say something else by now.
            modes.isolation.get_or_insert(level);
            modes.read_only.get_or_insert(t.is_read_only());
        }
        modes.put(&mut b);
        let begun = self.block.txn.is_some();
        b.u64(if begun { self.output.now as u64 } else { 0 });
        let changes = self.state.settings.get_mut().changes();
        b.u32(changes.len() as u32);
        for c in &changes {
            b.text(&c.name).text(&c.value).u8(u8::from(c.local));
        }
        let of_roles = changes.iter().filter(|c| is_of_role(&c.name));
        let names = of_roles.map(|c| &*c.value);
        put_roles(&mut b, &self.state.roles.get_mut().meanings(names));
        let savepoints = self.block.savepoint_list();
        b.u32(savepoints.len() as u32);
        for (name, at) in &savepoints {
            b.text(name).u32(*at as u32);
        }
        let history = self.shared.engine.history();
        b.u64(history.terms.last().map_or(0, |t| t.0));
        b.option(reads.as_deref());
        if own.is_some() {
            b.option(own.as_deref());
        }
        self.forward.moved = true;
        self.forward.hold = self.block.txn.as_mut().and_then(|t| t.take_hold());
        self.close_other_portals();
        if !self.has_own_portals() {
            self.close_portal("");
            self.end_here();
        }
        Ok(b.0)
    }

    /// After a text that does not run here, or not all of it: what is to run at the primary, if the statements before have run here.
    pub fn rest_of_text(&mut self) -> Option<String> {
        self.forward.rest.take()
    }

    /// The text of the statement of this name, to be shown.
    pub fn text_of(&mut self, name: &str) -> String {
        if let Some(s) = self.forward.elsewhere.get(name) {
            return s.text.to_string();
        }
        let found = self.find_statement(name);
        found.map_or_else(|_| String::new(), |st| st.text.to_string())
    }

    /// The tables that open portals may read yet.
    fn portal_tables(&self) -> Vec<RelId> {
        let mut storages = Vec::new();
        for p in self.portals.values().chain(&self.unnamed_portal) {
            if let PortalKind::Run(run) = &p.kind
                && !run.finished
            {
                storages.extend(&run.plan.prepared.touches().tables);
            }
        }
        storages
    }

    /// Open portals stay here and read on at this snapshot: what they may read must be the same where the transaction goes on.
    fn promise_portals(&mut self) -> Result<()> {
        let storages = self.portal_tables();
        match &mut self.block.txn {
            Some(t) => t.will_read(&storages),
            None => Ok(()),
        }
    }

    /// Portals of what is no query (a COMMIT, say) end when the transaction moves: here they would do their work beside it.
    fn close_other_portals(&mut self) {
        let unnamed = self.unnamed_portal.iter().map(|p| ("", p));
        let named = self.portals.iter().map(|(n, p)| (&**n, p));
        let other = named
            .chain(unnamed)
            .filter(|(_, p)| matches!(p.kind, PortalKind::Other(..)));
        let other: Vec<Box<str>> = other.map(|(n, _)| n.into()).collect();
        for name in other {
            self.close_portal(&name);
        }
    }

    /// A new token for the transaction that runs there.
    pub fn set_token(&self, known: &Known, token: u64) -> Vec<u8> {
        let mut b = Put::default();
        b.u64(token).u8(SAME).u64(known.number);
        b.0
    }

    /// Ends the transaction here and nothing else.
    fn end_here(&mut self) {
        self.unsay();
        if let Some(t) = self.block.txn.take() {
            self.state.saw(self.shared.engine.rollback(t).position());
        }
        self.state.rollback_locks(0);
    }

    /// A statement that was a transaction of its own, or a text that began one, begins again elsewhere.
    pub fn abandon(&mut self) {
        self.drop_portals();
        self.end_here();
        self.leave_block();
        self.undo_settings();
    }

    /// The primary says ReadyForQuery: this session stands as the one there.
    pub fn stands(&mut self, status: TxnStatus) {
        // It has arrived.
        self.forward.hold = None;
        match status {
            TxnStatus::Idle => {
                if self.block.status() != TxnStatus::Idle || self.forward.moved {
                    self.abandon();
                }
                self.forward.moved = false;
            }
            TxnStatus::InTransaction => {
                self.forward.moved = true;
                self.block.kind = Kind::Explicit;
            }
            TxnStatus::Failed => {
                self.forward.moved = true;
                self.block.kind = Kind::Failed;
            }
        }
    }

    /// The transaction that ran at the primary is lost. `failed`: the client is in a block that it has to roll back.
    pub fn lost(&mut self, failed: bool) {
        self.forward.hold = None;
        self.abandon();
        self.listens_to_nothing_new();
        self.forward.moved = false;
        if failed {
            self.block.kind = Kind::Failed;
        }
    }

    /// What has happened inside of the transaction that runs at the primary.
    pub fn goes_on(&mut self, b: &[u8]) -> Result<()> {
        let (b, pinned) = match b.len() % 4 {
            1 => b.split_at(b.len() - 1),
            _ => (b, &[][..]),
        };
        self.tied_by(pinned.first().copied().unwrap_or(0));
        if !b.is_empty() {
            let mut r = Get(b);
            let savepoint = r.u32()?.max(1);
            r.end()?;
            self.gone_back(savepoint);
            if self.forward.moved && !self.has_own_portals() {
                self.end_here();
            }
        }
        Ok(())
    }

    /// What the session has become at the primary, after [`Session::stands`] with nothing open.
    pub fn come_back(&mut self, known: &mut Known, b: &[u8]) -> Result<()> {
        let mut r = Get(b);
        let position = Position::from_u64(r.u64()?);
        let (session, sequences) = (r.option()?, r.option()?);
        let (gone, added) = read_statements(&mut r)?;
        let ties = match r.0.is_empty() {
            true => 0,
            false => r.u8()?,
        };
        self.tied_by(ties);
        let listens = match r.0.is_empty() {
            true => vec![],
            false => r.list(read_listening)?,
        };
        r.end()?;
        self.state.saw(position);
        if let Some(s) = session {
            let bearer = read_bearer(s)?;
            self.state.roles.get_mut().learn(bearer.roles);
            let settings = self.state.settings.get_mut();
            settings.take_over(&bearer.settings);
            // It was told by the primary's messages.
            settings.told();
            self.restore_roles();
            known.session = s.to_vec();
        }
        if let Some(s) = sequences {
            self.state.take_sequences(s)?;
            known.sequences = s.to_vec();
        }
        match listens.is_empty() {
            true => self.listens_to_nothing_new(),
            false => self.listens_here(&listens),
        }
        if !gone.is_empty() || !added.is_empty() {
            self.take_statements(&gone, added);
            known.statements = self.sources();
            known.version = self.forward.version;
        }
        Ok(())
    }

    /// The primary keeps the time limit of each statement. Should it not, this node does somewhat after all of these; when, 0: never.
    fn limit_of(&mut self, statements: usize) -> u64 {
        let limit = self.state.settings.get_mut().hot.statement_timeout;
        limit.map_or(0, |t| {
            let all = (t.as_millis() as u64).saturating_mul(statements as u64);
            let now = self.shared.host.monotonic_millis();
            now.saturating_add(all).saturating_add(GRACE)
        })
    }

    /// So many statements are on their way to the primary.
    pub fn limit_forwarded(&mut self, statements: usize) {
        let deadline = self.limit_of(statements);
        self.handle.limit(deadline);
    }

    /// A statement begins that runs at the primary.
    pub fn begin_forwarded(&mut self, text: &str) {
        let now = self.state.now();
        let deadline = self.limit_of(1);
        self.handle.begin(deadline);
        self.shared.counters.statements.add();
        self.shared
            .counters
            .forwarded
            .fetch_add(1, Ordering::Relaxed);
        let mut a = self.handle.activity.lock();
        a.state = "active";
        a.query_start = Some(now);
        a.state_change = Some(now);
        a.query = text.into();
    }
}
