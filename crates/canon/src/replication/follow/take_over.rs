//! A replica that is asked to take over: with its primary's help, or by force, and what is said of what may be lost.
//!
//! Left out on purpose: who asks (`Follow::promote`), and how long the answer may take.

use super::{End, Request, State, Task};
use base::Error;
use node::Promoted;
use replica::ship::receiver::Event;
use std::time::Duration;
use tracing::{error, info};

impl Task<'_> {
    pub(super) fn request(&mut self, r: Option<Request>) -> Option<End> {
        let r = match r? {
            Request::TakeOver(r) => r,
            Request::Anew(answer) => {
                self.receiver = self.follow.receiver(&self.following, &self.ring);
                self.commands.clear();
                (self.pause, self.anew) = (Some(Duration::ZERO), true);
                // The connection is dropped where this returns to, and nothing is sent before that.
                _ = answer.send(());
                return Some(End::Lost);
            }
        };
        let force = r.force;
        if !force && !self.receiver.is_streaming() {
            _ = r.answer.send(Err(self.follow.unconnected()));
            return None;
        }
        self.asked.push(r);
        if force {
            if let Some(term) = self.asked.last().and_then(|a| a.named) {
                return Some(End::TakeOver(format!(
                    "The members have named this node for term {term}."
                )));
            }
            let s = self.follow.state.lock();
            let now = self.follow.env.clock.unix_micros();
            let ago = s.heard.map(|h| (now - h).max(0) / 1000);
            let mut words = match ago {
                Some(ms) => format!("The old primary was last heard {ms} ms ago."),
                None => {
                    "The old primary was never heard since this node started: nobody here knows what it has.".to_owned()
                }
            };
            if let Some(ms) = ago {
                words += &self.may_be_lost(&s, ms);
            }
            if s.connected && ago.is_some_and(|ms| ms < 1000) {
                words += " It seems to be up: what it commits from now on is not part of the history, and is set aside when it comes back.";
            }
            return Some(End::TakeOver(words));
        }
        self.receiver.handle(Event::Seal, &mut self.commands);
        None
    }

    /// What is known here of what the old primary has and this replica has not.
    fn may_be_lost(&self, s: &State, silent_ms: i64) -> String {
        let received = self.following.marks.received.get();
        let mut words = match s.claimed > received {
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
            " Of the {silent_ms} ms since then nothing is known: commits of that time are lost, except those that waited for this replica."
        );
        if let (Some(first), Some(last)) = (s.pace.front(), s.pace.back())
            && last.0 > first.0
        {
            let seconds = (last.0 - first.0) as f64 / 1e6;
            let rate = (last.1 - first.1) as f64 / seconds;
            words += &format!(
                " Before, it made {rate:.0} commits per second over {seconds:.0} s; at that pace they are {:.0}.",
                (rate * silent_ms as f64 / 1e3).ceil()
            );
        }
        words
    }

    /// Becomes the primary. Whether it did.
    pub(super) async fn take_over(&mut self, words: &str) -> bool {
        let node = self.follow.node.clone();
        let published = self.following.marks.claimed();
        let named = self.asked.iter().find_map(|a| a.named);
        let done = tokio::task::spawn_blocking(move || node.promote_as(named)).await;
        let done = done.unwrap_or_else(|e| Err(Error::internal(e.to_string())));
        let report = done.map(|Promoted { term, start }| {
            self.follow.hears(term);
            let mut report = format!("Promoted: term {term} begins after {start}. {words}");
            if published > start {
                report +=
                    &format!(" It had published up to {published}: commits between are lost.");
            }
            report
        });
        match &report {
            Ok(r) => info!("{r}"),
            Err(e) => error!("not promoted: {e}"),
        }
        if report.is_ok() {
            self.unseal();
        }
        for r in self.asked.drain(..) {
            _ = r.answer.send(report.clone());
        }
        report.is_ok()
    }
}
