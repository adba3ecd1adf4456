//! What becomes of what is under way when a node refuses it, or is lost.
//!
//! A refusal is held back while the client has seen nothing of the cycle, nor of its block; at ReadyForQuery what was sent goes to another
//! node. In every other case the client is told, and leaves the node when nothing is under way.
//!
//! Left out on purpose: which node is next (`route`).

use super::cycle::{self, Ack, Cycle};
use super::{
    AtSync, GONE, Heard, Input, LOSSES, LOST, Loss, NO_WRITES, OPENING, REFUSALS, Said, Tie, Track,
    UNKNOWN,
};
use protocol::message::{error, field, message, ready, with_code};
use sql::effect::{self, Course};

/// How what is said of such tokens ends (`sql::session::token`).
const NOT_IN_HISTORY: &str = "is not in this server's history";

const ROLLBACK: &str = "ROLLBACK";

/// As a query.
pub fn rollback() -> Vec<u8> {
    message(b'Q', format!("{ROLLBACK}\0").as_bytes())
}

impl Track {
    pub(super) fn error(&mut self, body: &[u8], whole: &[u8], out: &mut Vec<u8>) -> Heard {
        let code = field(body, b'C').unwrap_or_default();
        let fatal = matches!(field(body, b'V').as_deref(), Some("FATAL" | "PANIC"));
        if fatal && matches!(code.as_str(), "57P01" | "57P02" | "57P03") {
            let nothing_run = field(body, b'D').as_deref() == Some(protocol::NOTHING_RUN);
            return Heard::Ending { nothing_run };
        }
        if fatal {
            out.extend_from_slice(&self.held());
            return Heard::Last;
        }
        let read_only = self.settings.get("default_transaction_read_only");
        let front = self.pending.front();
        let asked = self.reads_only || front.is_some_and(|c| c.effect.reads_only);
        let writable = self.endpoint && !asked && read_only.is_none_or(|v| v == "off");
        let block = self.status == b'T' || front.is_some_and(|c| c.effect.begins);
        let most = match code.as_str() {
            "25006" if writable => NO_WRITES,
            "57P03" => REFUSALS,
            _ => 0,
        };
        if most > 0 {
            self.leave = Some(code == "25006");
        }
        self.notice_lost_history(&code, body);
        let may_wait = self.is_fresh() && self.pending.len() == 1;
        if let Some(front) = self.pending.front_mut() {
            // What follows in the cycle is skipped, and not acknowledged. Is a query, too? Then one ReadyForQuery less comes.
            front.acks.truncate(front.acknowledged);
            if front.mixed {
                self.tie = Tie::Astray;
            }
            let alone = !front.answered && !front.flushed && front.whole;
            if may_wait && alone && front.refusals < most {
                front.held.extend_from_slice(whole);
                front.refused = true;
                front.refusals += 1;
                front.for_primary = code == "25006";
                return Heard::Nothing;
            }
            front.failed = true;
        }
        let held = self.held();
        out.extend_from_slice(&held);
        if block && most > 0 {
            // Its node cannot go on with the transaction: for the client it is lost as it is with its node.
            out.extend_from_slice(&with_code(whole, &code, "40001"));
            return Heard::Nothing;
        }
        Heard::Forward
    }

    /// A promotion by force has lost what the session has seen (its own commit, say): the client is told once, and its reads ask for
    /// that no more. A token that it has set itself is its own affair.
    fn notice_lost_history(&mut self, code: &str, body: &[u8]) {
        let what = field(body, b'M').unwrap_or_default();
        let own = self.settings.get("canon.min_token");
        let lost = what.starts_with("canon.min_token ") && what.ends_with(NOT_IN_HISTORY);
        if code == "55000" && lost && self.token.is_some() && own.is_none_or(String::is_empty) {
            self.token = None;
            self.forgets = true;
        }
    }

    /// This is done, and has left the session so: is there a block that has shown nothing?
    pub(super) fn opened(&mut self, done: &Cycle, status: u8) {
        self.reads_only = status != b'I' && (self.reads_only || done.effect.reads_only);
        if status != b'T' {
            self.opening = None;
            return;
        }
        let first = self.status == b'I';
        let opening = self.opening.take();
        self.opening = match (done.opening(), opening) {
            (Some(sql), None) if first => Some(vec![sql.to_owned()]),
            (Some(sql), Some(mut all)) if all.len() < OPENING => {
                all.push(sql.to_owned());
                Some(all)
            }
            (None, all) if !first && done.shows_nothing() => all,
            _ => None,
        };
    }

    /// The node is to end the transaction that stands in place of the one that was lost; the client gets this, and its ReadyForQuery.
    pub(super) fn ends(&mut self, reply: Vec<u8>) -> Said {
        self.pending.push_back(Cycle {
            bytes: rollback(),
            whole: true,
            closed: true,
            asks: true,
            failed: true,
            ours: true,
            effect: effect::effect(ROLLBACK),
            runs: 1,
            text: Some(ROLLBACK.to_owned()),
            ..Cycle::default()
        });
        Said::Ends(reply)
    }

    /// What the transaction that is lost has set is as it was before.
    fn unset(&mut self) {
        for (name, value) in std::mem::take(&mut self.before) {
            match value {
                Some(v) => self.settings.insert(name, v),
                None => self.settings.remove(&name),
            };
        }
        (self.reads_only, self.committed) = (false, false);
    }

    /// What is pending, to be sent once more.
    pub(super) fn again(&mut self) -> Vec<u8> {
        self.unset();
        let mut bytes = Vec::new();
        for c in &mut self.pending {
            bytes.extend_from_slice(&c.bytes);
            for a in c.acks.iter().take(c.acknowledged) {
                if let Ack::Parse { name, .. } = a {
                    self.statements.remove(name);
                }
            }
            (c.acknowledged, c.completed) = (0, 0);
            c.held.clear();
            c.acks = cycle::parses(&c.bytes);
            (c.refused, c.failed) = (false, false);
        }
        bytes
    }

    /// No node takes what this one has refused. Where it has opened a block, that has failed there.
    pub fn refused(&mut self, primary: bool, what: &str) -> Vec<u8> {
        let block = self.refused_in == b'E';
        if block {
            (self.status, self.opening) = (b'E', None);
        }
        let code = match primary {
            _ if block => "40001",
            true => "25006",
            false => "57P03",
        };
        self.give_up(code, what)
    }

    /// No node takes what is pending: an answer to each of it.
    pub fn give_up(&mut self, code: &str, what: &str) -> Vec<u8> {
        let mut reply = Vec::new();
        self.leave = None;
        for c in self.pending.drain(..) {
            // One error for each, and none for a Sync that stands alone.
            if c.asks && !c.failed {
                reply.extend(error("ERROR", code, what));
            }
            if c.closed {
                reply.extend(ready(self.status));
            } else {
                self.input = Input::Skipped(AtSync::Ready);
            }
        }
        reply
    }

    /// Whether it waits for the same as when it was last asked, of which nothing has come, and would lose nothing by being told that the
    /// node is gone: a read runs elsewhere. `block`: a transaction may be lost, too, as long as it has not been told to commit.
    pub fn waits(&mut self, block: bool) -> bool {
        let same = self.asked.replace(self.done) == Some(self.done);
        let front = self.pending.front();
        let unanswered = front.is_some_and(|c| c.closed && !c.answered);
        if !same || !unanswered || self.tie != Tie::None {
            return false;
        }
        let again = |c: &Cycle| c.whole && c.effect.may_run_again();
        let mut course = Course::new(true);
        self.pending.iter().for_each(|c| course.then(c.effect));
        match self.status {
            b'I' => self.pending.iter().all(again),
            b'T' => block && !course.may_have_committed,
            _ => false,
        }
    }

    /// The node is gone.
    pub fn lost(&mut self, nothing_run: bool) -> Loss {
        if self.tie != Tie::None {
            return Loss::End(error("FATAL", "57P01", GONE));
        }
        let in_block = self.status != b'I';
        self.opening = None;
        self.unset();
        if in_block && self.pending.iter().all(|c| c.closed && !c.asks) {
            // A transaction that has failed already fails on. What runs nothing does not take the word of it.
            if self.status == b'T' {
                self.input = Input::Doomed;
            }
            return Loss::Told {
                reply: self.give_up("40001", LOST),
                failed_block: true,
            };
        }
        if self.pending.is_empty() {
            return Loss::Silent(vec![]);
        }
        let unanswered = self.pending.front().is_some_and(|c| !c.answered);
        let again = |c: &Cycle| {
            let harmless = c.effect.may_run_again() && c.losses < LOSSES;
            c.whole && (nothing_run || c.refused || harmless)
        };
        if !in_block && unanswered && self.pending.iter().all(again) {
            let front = self.pending.front_mut();
            front.expect("one is there").losses += u32::from(!nothing_run);
            return Loss::Silent(self.again());
        }
        let mut course = Course::new(in_block);
        self.pending.iter().for_each(|c| course.then(c.effect));
        let (code, what) = match course.may_have_committed && !nothing_run {
            true => ("40003", UNKNOWN),
            false => ("40001", LOST),
        };
        self.status = if course.block { b'E' } else { b'I' };
        Loss::Told {
            reply: self.give_up(code, what),
            failed_block: course.block,
        }
    }
}
