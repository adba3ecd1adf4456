//! A replica that is asked to take over: with its primary's help, or by force, and what is said of what may be lost.
//!
//! Left out on purpose: who asks, and how long the answer may take.

use super::{Answer, BACKOFF, Do, Life, Note, Receiving};
use crate::promote::Promoted;
use crate::restart::Restart;
use base::{Error, Position, Result, SqlState};
use replica::ship::receiver::Event as Happened;

impl Receiving {
    /// This node is asked to become the primary.
    pub(super) fn asked(&mut self, force: bool, named: Option<u64>, out: &mut Vec<Do>) {
        if !force && !self.receiver.is_streaming() {
            return out.push(Do::Answer(Err(unconnected(&self.options.primary))));
        }
        self.asked = true;
        match force {
            true => {
                let words = match named {
                    Some(term) => format!("The members have named this node for term {term}."),
                    None => self.premise(),
                };
                self.promote(words, named, false, out);
            }
            false => self.feed(Happened::Seal),
        }
    }

    /// The old primary has handed over.
    pub(super) fn handed_over(&mut self, last: Position, out: &mut Vec<Do>) {
        out.push(Do::Note(Note::HandedOver(last)));
        let words = format!("The old primary handed over at {last}; nothing is lost.");
        self.promote(words, None, true, out);
    }

    /// `handed_over`: the old primary serves no client any more, by its own word.
    fn promote(&mut self, words: String, named: Option<u64>, handed_over: bool, out: &mut Vec<Do>) {
        self.let_go();
        self.following.handed_over(handed_over);
        self.commands.clear();
        self.words = words;
        self.life = Life::TakingOver;
        self.seen.lock().is_away("connecting");
        out.push(Do::Promote { named });
    }

    /// What is known of the old primary when this node is promoted by force.
    fn premise(&self) -> String {
        let s = self.seen.lock();
        let now = self.node.clock().unix_micros();
        let Some(ago) = s.heard.map(|h| (now - h).max(0) / 1000) else {
            return "The old primary was never heard since this node started: nobody here knows what it has.".to_owned();
        };
        let received = self.following.marks.received.get();
        let mut words = format!("The old primary was last heard {ago} ms ago.");
        words += &match s.claimed > received {
            true => format!(
                " It had said that it has everything up to {}: what is above {received}, {} epochs of it, did not come here and is lost.",
                s.claimed,
                s.claimed.epoch() - received.epoch()
            ),
            false => format!(
                " All that it had said to have by then, up to {}, is here.",
                s.claimed
            ),
        };
        words += &format!(
            " Of the {ago} ms since then nothing is known: commits of that time are lost, except those that waited for this replica."
        );
        if let Some((rate, seconds)) = s.rate() {
            words += &format!(
                " Before, it made {rate:.0} commits per second over {seconds:.0} s; at that pace they are {:.0}.",
                (rate * ago as f64 / 1e3).ceil()
            );
        }
        if s.connected && ago < 1000 {
            words += " It seems to be up: what it commits from now on is not part of the history, and is set aside when it comes back.";
        }
        words
    }

    /// The promotion has ended, well or not.
    pub(super) fn promoted(&mut self, done: Result<Promoted>, out: &mut Vec<Do>) {
        let Promoted { term, start } = match done {
            Ok(p) => p,
            Err(e) => return self.not_promoted(e, out),
        };
        out.push(Do::Hears(term));
        let words = &self.words;
        let mut report = format!("Promoted: term {term} begins after {start}. {words}");
        let published = self.following.marks.claimed();
        if published > start {
            report += &format!(" It had published up to {published}: commits between are lost.");
        }
        let node = self.node.clone();
        self.run(out, move || {
            let agreed = node.dir().unseal().and_then(|()| node.dir().agree());
            Ok(Answer::Leads(
                report,
                agreed.err().map(crate::errors::failed),
            ))
        });
    }

    fn not_promoted(&mut self, e: Error, out: &mut Vec<Do>) {
        out.push(Do::Note(Note::NotPromoted(e.clone())));
        self.asked = false;
        out.push(Do::Answer(Err(e)));
        match self.following.has_ended() {
            true => self.start_again(Restart::Stranded, out),
            false => {
                self.feed(Happened::Disconnected);
                self.connect(BACKOFF.0, out);
            }
        }
    }
}

/// 55000: no primary is there that could hand over.
pub fn unconnected(primary: &str) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the primary {primary} is not connected and cannot hand over"),
    )
    .hint("If it is down for good: canon promote --force --old-primary-is-down.")
}
