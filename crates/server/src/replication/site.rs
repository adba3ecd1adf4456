//! A site's way to its primary: candidates go, verdicts come (PSP §3.3). One connection for all sessions, made when the first one commits.
//!
//! ```text
//! session ──▶ certify ──▶ queue ──▶ drive ──▶ certifier.rs, at the primary     (words.rs says how)
//!                ▲                    │
//!                └── verdict ◀────────┘◀── the log that is followed, where the connection is lost
//! ```
//! **A verdict that is lost is asked for again by its number, and never assumed.** When a connection ends, what it had sent is sent anew over the next
//! one, marked so: the primary answers with the first verdict and runs nothing twice. While there is no connection the log may bring
//! the number, which says as much. A node that is promoted finds the numbers in its own history: what is not there has not been committed and
//! never will be.
//!
//! A session that gives up (a cancel, the end of its client) leaves its number to the primary: it may commit.
//!
//! Questions for numbers of sequences (`node::ranges`) go the same way. One that is asked twice draws two ranges, of which the first is lost.
//!
//! Left out on purpose: commits that are shown before the log brings them; the choice of another primary, which is the members' word (`control`), a start with
//! another `replica_of`, or a promotion. Whether the history here has what a verdict says is looked at by `node::site`.

pub(super) mod certifier;

use super::Primary;
use super::commands;
use super::copy_both::CopyBoth;
use base::{Candidate, CommitWait, Error, Oid, Position, Result, SqlState};
use futures::channel::oneshot;
use node::site_words::{Answer, Certify, Draw, decode_answer};
use node::{Certifier, Node, Numbers, Outcome, Request, Role};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};
use txn::Durability;

/// A primary that says nothing for so long is taken for gone. It says that it is there more often than that (`certifier`).
const SILENCE: Duration = Duration::from_secs(2);

/// A connection that has not begun after so long is made anew. The primary says on it that it is there only from then on.
const BEGIN: Duration = Duration::from_secs(10);

/// How often it is looked what the log has brought.
const LOOK: Duration = Duration::from_millis(250);

/// A node that decides nothing for so long is asked over another connection, and the log says so: it may be the primary no more.
const UNDECIDED: Duration = Duration::from_secs(5);

/// Before a candidate is sent again for which nothing was decided.
const AGAIN: Duration = Duration::from_millis(20);

/// Longest pause between tries to connect.
const MOST_BACKOFF: Duration = Duration::from_secs(1);

/// A refusal waits so long at most for what won to be shown here.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was done so far.
#[derive(Debug, Default)]
pub struct SiteStats {
    /// Candidates that were asked for.
    pub candidates: AtomicU64,
    pub committed: AtomicU64,
    pub refused: AtomicU64,
    /// Candidates that were sent again.
    pub repeated: AtomicU64,
    /// Nanoseconds between a request and its verdict, of all together.
    pub waited: AtomicU64,
    /// Ranges of numbers that came.
    pub ranges: AtomicU64,
}

/// A candidate without a verdict.
struct Pending {
    request: Certify,
    after: Position,
    tell: oneshot::Sender<Verdict>,
}

/// A question for numbers of a sequence.
struct Drawing {
    count: u32,
    sent: Sent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    No,
    Yes,
    /// Nothing was decided: to be sent again soon.
    Again,
}

/// Where it has committed; or why not, and a position at which that shows.
type Verdict = std::result::Result<Position, (Error, Position)>;

#[derive(Default)]
struct Queue {
    waiting: HashMap<u64, Pending>,
    /// Numbers to be sent, and those for which nothing was decided: to be sent again soon.
    out: Vec<u64>,
    later: Vec<u64>,
    /// Questions for numbers of sequences that have no answer.
    draws: HashMap<Oid, Drawing>,
}

/// See the head of the file.
pub struct Site {
    primary: Primary,
    name: String,
    /// It has this, too.
    node: Weak<Node>,
    queue: Mutex<Queue>,
    moved: Notify,
    pub stats: SiteStats,
}

fn given_up() -> Error {
    Error::new(
        SqlState::STATEMENT_COMPLETION_UNKNOWN,
        "the server ends before the primary's verdict has come; whether the transaction committed is not known",
    )
}

fn not_committed() -> Error {
    let what =
        "could not serialize access: the primary has changed before the transaction committed";
    Error::new(SqlState::SERIALIZATION_FAILURE, what)
        .hint("The transaction might succeed if retried.")
}

impl Certifier for Site {
    fn certify(
        self: Arc<Self>,
        r: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Position>> + Send>> {
        // Its changes were looked at before; what it has read comes on top.
        if let Err(e) = Candidate::check_size(r.candidate.len()) {
            return Box::pin(std::future::ready(Err(e)));
        }
        let (tell, told) = oneshot::channel();
        let number = r.number;
        let pending = Pending {
            request: Certify {
                number,
                term: 0,
                again: r.again.then_some(r.after),
                durability: r.durability,
                candidate: r.candidate,
            },
            after: r.after,
            tell,
        };
        let began = Instant::now();
        self.stats.candidates.fetch_add(1, Relaxed);
        {
            let mut q = self.queue.lock();
            q.waiting.insert(number, pending);
            q.out.push(number);
        }
        self.moved.notify_one();
        let site = self;
        Box::pin(async move {
            let verdict = told.await;
            if verdict.is_ok() {
                let took = began.elapsed().as_nanos() as u64;
                site.stats.waited.fetch_add(took, Relaxed);
            }
            match verdict {
                Ok(Ok(at)) => {
                    site.stats.committed.fetch_add(1, Relaxed);
                    Ok(at)
                }
                Ok(Err((e, shows))) => {
                    site.stats.refused.fetch_add(1, Relaxed);
                    let shown = site.node.upgrade();
                    let shown = shown.map(|n| n.published(CommitWait::Published(shows)));
                    if let Some(shown) = shown {
                        // Run again before, it would lose to the same transaction.
                        _ = tokio::time::timeout(PATIENCE, shown).await;
                    }
                    Err(e)
                }
                Err(_) => Err(given_up()),
            }
        })
    }

    fn draw(&self, sequence: Oid, count: u32) {
        let sent = Sent::No;
        let drawing = Drawing { count, sent };
        self.queue.lock().draws.insert(sequence, drawing);
        self.moved.notify_one();
    }
}

impl Site {
    pub fn new(primary: Primary, name: String, node: &Arc<Node>) -> Arc<Site> {
        Arc::new(Site {
            primary,
            name,
            node: Arc::downgrade(node),
            queue: Mutex::default(),
            moved: Notify::new(),
            stats: SiteStats::default(),
        })
    }

    /// Candidates without a verdict.
    pub fn pending(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    fn is_asking(&self) -> bool {
        let q = self.queue.lock();
        !q.waiting.is_empty() || !q.draws.is_empty()
    }

    fn came(&self, sequence: Oid, answer: Result<Numbers>) {
        self.queue.lock().draws.remove(&sequence);
        self.stats
            .ranges
            .fetch_add(u64::from(answer.is_ok()), Relaxed);
        if let Some(node) = self.node.upgrade() {
            node.numbers_came(sequence, answer);
        }
    }

    fn tell(&self, number: u64, verdict: Verdict) {
        let pending = self.queue.lock().waiting.remove(&number);
        if let Some(p) = pending {
            // The session that asked may have gone.
            _ = p.tell.send(verdict);
        }
    }

    /// A verdict leaves the primary when its commit is published there. The log may have come before that and may not say so until more follows.
    fn is_published(&self, number: u64, at: Position) {
        let term = self
            .queue
            .lock()
            .waiting
            .get(&number)
            .map(|p| p.request.term);
        let following = self.node.upgrade().and_then(|n| n.following());
        if let Some((term, following)) = term.zip(following) {
            following.published(term, at);
        }
    }

    fn answered(&self, answer: Answer) {
        match answer {
            Answer::IAm => {}
            Answer::Committed(number, at) => {
                self.is_published(number, at);
                self.tell(number, Ok(at));
            }
            Answer::Refused(number, shows, e) => {
                // The primary may have forgotten what the log has brought.
                let forgotten = e.code() == SqlState::STATEMENT_COMPLETION_UNKNOWN;
                let node = self.node.upgrade().filter(|_| forgotten);
                match node.and_then(|n| n.committed_at(number)) {
                    Some(at) => self.tell(number, Ok(at)),
                    None => self.tell(number, Err((e, shows))),
                }
            }
            Answer::Later(number) => {
                let mut q = self.queue.lock();
                if q.waiting.contains_key(&number) {
                    q.later.push(number);
                }
            }
            Answer::Numbers(sequence, numbers) => self.came(sequence, Ok(numbers)),
            Answer::NoNumbers(sequence, e) => self.came(sequence, Err(e)),
            Answer::DrawLater(sequence) => {
                if let Some(d) = self.queue.lock().draws.get_mut(&sequence) {
                    d.sent = Sent::Again;
                }
            }
        }
    }

    /// What nothing was decided for is sent again.
    fn again(&self) {
        let q = &mut *self.queue.lock();
        q.out.append(&mut q.later);
        let again = q.draws.values_mut().filter(|d| d.sent == Sent::Again);
        again.for_each(|d| d.sent = Sent::No);
    }

    /// What the log has brought is decided; what has no session any more is forgotten. Whether anything waits.
    fn look(&self) -> bool {
        let Some(node) = self.node.upgrade() else {
            return false;
        };
        let mut brought = Vec::new();
        let waits = {
            let mut q = self.queue.lock();
            q.waiting.retain(|number, p| {
                // That other replicas show it, too, is for the primary to say.
                let here = p.request.durability != Durability::RemoteApply
                    && !env::fault::planted("site.log_tells_nothing");
                let at = node.committed_at(*number).filter(|_| here);
                brought.extend(at.map(|at| (*number, at)));
                at.is_some() || !p.tell.is_canceled()
            });
            q.waiting.len() > brought.len() || !q.draws.is_empty()
        };
        let shown = node.marks().published.get();
        for (number, at) in brought {
            // Above what is published it may be lost still.
            if at <= shown {
                self.tell(number, Ok(at));
            }
        }
        waits
    }

    /// A connection ended: what waits goes over the next one.
    fn lost(&self) {
        let q = &mut *self.queue.lock();
        q.draws.values_mut().for_each(|d| d.sent = Sent::No);
        q.later.clear();
        q.out = q.waiting.keys().copied().collect();
    }

    /// Puts what is to be sent into the connection, as of the history that is followed now.
    fn send<S: AsyncRead + AsyncWrite>(&self, link: &mut CopyBoth<S>) {
        let following = self.node.upgrade().and_then(|n| n.following());
        let term = following.map_or(0, |f| f.followed());
        let q = &mut *self.queue.lock();
        for number in q.out.drain(..) {
            let Some(p) = q.waiting.get_mut(&number) else {
                continue;
            };
            p.request.term = term;
            link.send_with(|out| p.request.encode(out));
            if p.request.again.replace(p.after).is_some() {
                self.stats.repeated.fetch_add(1, Relaxed);
            }
        }
        for (&sequence, d) in &mut q.draws {
            if d.sent == Sent::No {
                d.sent = Sent::Yes;
                let count = d.count;
                let draw = Draw {
                    sequence,
                    term,
                    count,
                };
                link.send_with(|out| draw.encode(out));
            }
        }
    }

    /// Carries candidates and verdicts until the connection ends; why it did. `Err`: no verdict has come over it.
    async fn drive<S: AsyncRead + AsyncWrite>(&self, link: &mut CopyBoth<S>) -> Result<Error> {
        let mut heard = Instant::now();
        let mut look = tokio::time::interval(LOOK);
        let (mut again, mut decided) = (None, false);
        let mut undecided: Option<Instant> = None;
        let ended = |decided, why| match decided {
            true => Ok(why),
            false => Err(why),
        };
        loop {
            self.send(link);
            let due = again.unwrap_or_else(Instant::now);
            tokio::select! {
                a = link.next_as(decode_answer) => match a {
                    Ok(a) => {
                        heard = Instant::now();
                        match a {
                            Answer::IAm => {}
                            Answer::Committed(..)
                            | Answer::Refused(..)
                            | Answer::Numbers(..)
                            | Answer::NoNumbers(..) => {
                                (decided, undecided) = (true, None);
                            }
                            Answer::Later(_) | Answer::DrawLater(_) => {
                                // Not at once again.
                                again.get_or_insert(heard + AGAIN);
                                undecided.get_or_insert(heard);
                            }
                        }
                        self.answered(a);
                        if undecided.is_some_and(|since| since.elapsed() > UNDECIDED) {
                            let what = "the node there is not the primary that this site follows";
                            return Err(Error::new(SqlState::CONNECTION_FAILURE, what));
                        }
                    }
                    Err(e) => return ended(decided, e),
                },
                () = self.moved.notified() => {}
                () = tokio::time::sleep_until(due), if again.is_some() => {
                    again = None;
                    self.again();
                }
                _ = look.tick() => {
                    if !self.look() {
                        heard = Instant::now();
                    } else if heard.elapsed() > SILENCE {
                        let what = format!("the primary has said nothing for {SILENCE:?}");
                        let why = Error::new(SqlState::CONNECTION_FAILURE, what);
                        return ended(decided, why);
                    }
                }
            }
        }
    }

    async fn connect_and_drive(&self) -> Result<Error> {
        let parameters = [
            ("replication", "canon"),
            ("application_name", self.name.as_str()),
        ];
        let link = self.primary.connect(&parameters).await?;
        let begun = tokio::time::timeout(BEGIN, CopyBoth::begin(link, commands::COMMITS)).await;
        let mut link = begun.map_err(|_| {
            let what = "the primary does not answer";
            Error::new(SqlState::CONNECTION_FAILURE, what)
        })??;
        self.drive(&mut link).await
    }

    async fn carry(&self) {
        let mut failures = 0u32;
        loop {
            while !self.is_asking() {
                self.moved.notified().await;
            }
            match self.connect_and_drive().await {
                Ok(why) => {
                    failures = 0;
                    debug!("verdicts come no more: {}", why.fields().message);
                }
                Err(why) => {
                    failures += 1;
                    if failures == 1 {
                        let what = "commits of this site wait: the primary decides nothing";
                        warn!(primary = %self.primary, "{what}: {}", why.fields().message);
                    }
                }
            }
            self.lost();
            let step = AGAIN * (1 << failures.min(6));
            tokio::time::sleep(step.min(MOST_BACKOFF)).await;
        }
    }

    /// Looks what the log has brought while there is no connection that would.
    async fn keep_looking(&self) {
        while (self.node.upgrade()).is_some_and(|n| n.role() == Role::Replica) {
            self.look();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// This node follows no more: its own history has the verdicts.
    async fn settle(&self) {
        while let Some(node) = self.node.upgrade() {
            let waiting: Vec<(u64, Position)> = {
                let q = self.queue.lock();
                let all = q.waiting.iter();
                all.map(|(number, p)| (*number, p.after)).collect()
            };
            self.queue.lock().draws.clear();
            node.draws_no_more();
            for (number, after) in waiting {
                let shows = node.marks().published.get();
                match node.outcome(number, after) {
                    Outcome::Committed(at) => self.tell(number, Ok(at)),
                    Outcome::Aborted => self.tell(number, Err((not_committed(), shows))),
                    Outcome::Unknown => self.tell(number, Err((given_up(), shows))),
                    Outcome::Running => {}
                }
            }
            drop(node);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Has connections made when they are wanted, while this node follows; then decides what is left.
    pub async fn run(&self) {
        tokio::select! {
            () = self.keep_looking() => {}
            () = self.carry() => {}
        }
        self.settle().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::NodeOptions;

    /// Where replicas decide, the log reaches a site before its primary knows that it is published.
    #[tokio::test]
    async fn a_verdict_says_that_its_commit_is_published() {
        let scratch = tempfile::tempdir().expect("a directory");
        drop(Node::open(scratch.path(), NodeOptions::default()).expect("a new database"));
        let options = NodeOptions {
            replica: true,
            ..NodeOptions::default()
        };
        let node = Arc::new(Node::open(scratch.path(), options).expect("a replica"));
        let primary = Primary::parse("127.0.0.1:1").expect("an address");
        let site = Site::new(primary, "a".into(), &node);
        let (tell, mut told) = oneshot::channel();
        let (term, number) = (node.term(), 7);
        let request = Certify {
            number,
            term,
            again: None,
            durability: Durability::On,
            candidate: Vec::new(),
        };
        let after = Position::ZERO;
        let pending = Pending {
            request,
            after,
            tell,
        };
        site.queue.lock().waiting.insert(number, pending);
        let following = node.following().expect("it follows");
        let at = following.marks.received.get().next();
        site.answered(Answer::Committed(number, at));
        assert_eq!(following.marks.claimed(), at);
        assert!(matches!(told.try_recv(), Ok(Some(Ok(told))) if told == at));
    }
}
