//! At the primary: a session of its own that does the work of another node's.
//!
//! It logged in as a role that may replicate and acts as whoever the other node says, which has checked who that is. Every
//! adoption begins outside of a transaction; what it has to say against it becomes the error of the next message.
//!
//! Many clients have the connection one after another, and nothing may run as the one before: an adoption names the session by its
//! number, one that goes on must name the one that is here (08P01), and while it is nobody's (at the start, and after one that could not
//! become who it should) every message is refused.

use super::bytes::{Get, Put, malformed};
use super::{
    ANEW, EXPLICIT, IMPLICIT, Known, NOTHING, ROOTED, SAME, TIED, read_bearer, read_roles,
    read_statements,
};
use crate::engine::Engine;
use crate::session::Session;
use crate::session::block::Kind;
use crate::session::notify::Listening;
use crate::session::roles::Roles;
use crate::session::settings::Change;
use crate::session::token::Token;
use crate::session::utility::Modes;
use base::{Candidate, Error, Footprint, Result, SqlState, Work};

fn another_history() -> Error {
    Error::new(
        SqlState::SERIALIZATION_FAILURE,
        "could not serialize access due to read/write dependencies among transactions",
    )
    .detail("What the transaction read at a replica is not of the history that the primary has.")
    .hint("The transaction might succeed if retried.")
}

/// This session as another's.
#[derive(Default)]
pub struct Adopted {
    /// What is known there of the session that this is.
    known: Known,
    /// What the next message is answered with.
    error: Option<Error>,
    /// The number of the transaction that runs or comes next; 0: none.
    token: u64,
    /// What transactions here have listened to, for the session there.
    listens: Vec<Listening>,
}

impl<E: Engine> Session<E> {
    /// The connection is another node's, for its sessions.
    pub fn accept_adoptions(&mut self) {
        self.forward.adopted = Some(Box::default());
    }

    /// Whether it is.
    pub fn is_adopted(&self) -> bool {
        self.forward.adopted.is_some()
    }

    /// What the last adoption has come to: once, and of a session that is nobody's always.
    #[inline]
    pub fn adoption_error(&mut self) -> Option<Error> {
        let a = self.forward.adopted.as_mut()?;
        match a.known.number {
            0 => Some(a.error.clone().unwrap_or_else(malformed)),
            _ => a.error.take(),
        }
    }

    /// Becomes what this says. 08P01 when this is no connection for it.
    pub fn adopt(&mut self, b: &[u8]) -> Result<()> {
        if self.forward.adopted.is_none() {
            return Err(malformed());
        }
        let e = self.adopt_all(b).err();
        if let Some(e) = &e
            && e.code() == SqlState::PROTOCOL_VIOLATION
        {
            return Err(e.clone());
        }
        self.adopted().error = e;
        Ok(())
    }

    /// What of the session is in this connection alone.
    fn ties(&self) -> u8 {
        let rooted = !self.temp.is_empty();
        let tied = rooted || self.state.holds_advisory() || self.has_holdable();
        (u8::from(tied) * TIED) | (u8::from(rooted) * ROOTED)
    }

    fn adopted(&mut self) -> &mut Adopted {
        self.forward.adopted.as_mut().expect("it was looked at")
    }

    fn adopt_all(&mut self, b: &[u8]) -> Result<()> {
        let mut r = Get(b);
        let token = r.u64()?;
        self.adopted().token = token;
        let (how, number) = (r.u8()?, r.u64()?);
        if number == 0 || how != ANEW && number != self.adopted().known.number {
            return Err(malformed());
        }
        if how == SAME {
            return r.end();
        }
        if self.block.kind != Kind::None {
            return Err(malformed());
        }
        if how == ANEW {
            *self.adopted() = Adopted {
                token,
                ..Adopted::default()
            };
            self.deallocate(None)?;
            self.forget("");
            self.close_cursors(None)?;
            self.drop_portals();
            self.discard_temp()?;
            self.state.drop_locks();
            self.lost = 0;
            self.state.forget_seen();
        }
        let (session, sequences) = (r.option()?, r.option()?);
        let (gone, added) = read_statements(&mut r)?;
        let kind = r.u8()?;
        // Everything that outlives the transaction first: it is known from now on, whatever comes of the rest.
        if let Some(s) = session {
            self.adopted().known.number = 0;
            self.become_session(s)?;
            self.adopted().known.number = number;
        }
        if self.adopted().known.number == 0 {
            return Err(malformed());
        }
        if let Some(s) = sequences {
            self.state.take_sequences(s)?;
            self.adopted().known.sequences = s.to_vec();
        }
        if !gone.is_empty() || !added.is_empty() {
            self.take_statements(&gone, added);
        }
        let (now, version) = (self.sources(), self.forward.version);
        let known = &mut self.adopted().known;
        (known.statements, known.version) = (now, version);
        match kind {
            NOTHING => r.end()?,
            IMPLICIT | EXPLICIT => self.adopt_transaction(&mut r, kind)?,
            _ => return Err(malformed()),
        }
        if !self.shared.engine.runs(Work::Write) {
            return Err(Error::new(
                SqlState::CANNOT_CONNECT_NOW,
                "the node that this one follows is not the primary",
            )
            .hint("Try again when a primary has been found."));
        }
        Ok(())
    }

    fn become_session(&mut self, s: &[u8]) -> Result<()> {
        let bearer = read_bearer(s)?;
        let catalog = self.shared.engine.catalog();
        let role = catalog.schema.role(bearer.login).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_AUTHORIZATION,
                format!("role with OID {} does not exist", bearer.login),
            )
        })?;
        self.state.authenticated = role.id;
        self.handle.activity.lock().user = role.id;
        *self.state.catalog.get_mut() = catalog.clone();
        let roles = self.state.roles.get_mut();
        *roles = Roles::default();
        roles.learn(bearer.roles);
        let settings = self.state.settings.get_mut();
        settings.take_over(&bearer.settings);
        let name = settings.show("application_name").unwrap_or_default();
        self.handle.activity.lock().application_name = name;
        self.restore_roles();
        // Nothing of this is news to the client.
        self.state.settings.get_mut().told();
        self.adopted().known.session = s.to_vec();
        Ok(())
    }

    fn adopt_transaction(&mut self, r: &mut Get<'_>, kind: u8) -> Result<()> {
        let modes = Modes::read(r)?;
        let now = r.u64()?;
        let changes = r.list(|r| {
            Ok(Change {
                name: r.text()?.to_owned(),
                value: r.text()?.to_owned(),
                local: r.u8()? == 1,
            })
        })?;
        let roles = read_roles(r)?;
        let savepoints = r.list(|r| Ok((r.text()?.to_owned(), r.u32()? as usize)))?;
        let term = r.u64()?;
        let reads = r.option()?;
        // Of a site only.
        let own = match r.0.is_empty() {
            true => None,
            false => r.option()?,
        };
        r.end()?;
        let own = match own {
            Some(b) => Some(Candidate::decode(b).ok_or_else(malformed)?),
            None => None,
        };
        let reads = match reads {
            Some(b) => Some(Footprint::decode_reads(b).ok_or_else(malformed)?),
            None => None,
        };
        self.state.roles.get_mut().learn(roles);
        self.block.begin(kind == EXPLICIT, modes);
        let mut changed = 0;
        for (name, at) in &savepoints {
            self.redo(&changes[changed.min(changes.len())..(*at).min(changes.len())]);
            changed = *at;
            self.savepoint(name)?;
        }
        self.block.brought = savepoints.len() as u32;
        self.redo(&changes[changed.min(changes.len())..]);
        self.state.settings.get_mut().told();
        if let Some(reads) = reads {
            self.ensure_txn(false);
            let txn = self.block.txn.as_mut().expect("just begun");
            // Positions say what was read only in the history that the replica followed.
            let history = self.shared.engine.history();
            let read = Token {
                cluster: history.cluster,
                term,
                position: reads.snapshot,
            };
            let adopted = match read.check(&history) {
                Ok(()) => txn.adopt_reads(&reads),
                Err(_) => Err(another_history()),
            };
            let adopted = match (adopted, &own) {
                (Ok(()), Some(own)) => txn.adopt_changes(own),
                (adopted, _) => adopted,
            };
            if let Err(e) = adopted {
                // Not even a savepoint may be gone back to.
                self.abandon();
                self.block.begin(kind == EXPLICIT, modes);
                return Err(e);
            }
        }
        if now != 0 {
            self.ensure_txn(false);
            self.output.now = now as i64;
        }
        Ok(())
    }

    fn redo(&mut self, changes: &[Change]) {
        let settings = self.state.settings.get_mut();
        changes.iter().for_each(|c| settings.change(c));
        if !changes.is_empty() {
            self.see_roles();
            self.restore_roles();
        }
    }

    /// The number of the transaction that commits now, for its record in the log; 0: it has none.
    pub(in super::super) fn transaction_token(&self) -> u64 {
        self.forward.adopted.as_ref().map_or(0, |a| a.token)
    }

    /// Where what is listened to is kept for the session that this is of; none: it is no other's.
    pub(in super::super) fn heard_elsewhere(&mut self) -> Option<&mut Vec<Listening>> {
        self.forward.adopted.as_mut().map(|a| &mut a.listens)
    }

    /// It has committed: the next one needs another.
    pub(in super::super) fn token_is_used(&mut self) {
        if let Some(a) = &mut self.forward.adopted {
            a.token = 0;
        }
    }

    /// Before a ReadyForQuery: what the other node must know. Outside of a transaction all that has changed; else whether the token
    /// is used up, and to which savepoint of the other node's it has gone back. Nothing while the session is nobody's.
    pub fn returned(&mut self) -> Option<Vec<u8>> {
        self.forward
            .adopted
            .as_ref()
            .filter(|a| a.known.number != 0)?;
        let mut b = Put::default();
        b.u64(self.adopted().token);
        if self.block.kind != Kind::None {
            if let Some(at) = self.block.gone_back.take() {
                b.u32(at);
            }
            let ties = self.ties();
            if ties != 0 {
                b.u8(ties);
            }
            return Some(b.0);
        }
        let session = self.session_bytes();
        let sequences = self.state.sequence_bytes();
        let mut known = std::mem::take(&mut self.adopted().known);
        b.u64(self.state.seen.get().as_u64());
        b.option((known.session != session).then_some(&session[..]));
        b.option((known.sequences != sequences).then_some(&sequences[..]));
        self.put_statements(&mut known, &mut b);
        (known.session, known.sequences) = (session, sequences);
        // The last, and only where it is so.
        let (ties, listens) = (self.ties(), &mut self.adopted().listens);
        let listens = std::mem::take(listens);
        if ties != 0 || !listens.is_empty() {
            b.u8(ties);
        }
        if !listens.is_empty() {
            b.u32(listens.len() as u32);
            listens.iter().for_each(|l| super::put_listening(&mut b, l));
        }
        self.adopted().known = known;
        Some(b.0)
    }
}
