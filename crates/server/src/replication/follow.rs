//! The replica's side of its connection: a task that carries what `node::receiving` says.
//!
//! ```text
//! primary ══▶ node::receiving ──▶ the node's ring ──▶ (node) own log, replay ──▶ visible
//!         ══▶ ring that both map (`log_ring`), with a bell ──▶ the same
//!         ◀══ acknowledgements ◀───────────────────────── marks moved
//! ```
//! The task lives as long as the node is a replica, and makes each of its connections. It serves requests to take over, and tells the server when
//! the node has to start again ([`Restart`]).
//!
//! Left out on purpose: what is asked, taken and answered, which the node decides.

use super::Primary;
use super::commands;
use super::copy_both::{CopyBoth, broken};
use super::log_ring::Offered;
use base::{Error, Position, Result, SqlState};
use env::Env;
use node::receiving::{Do, Event, Note, Options, Receiving, Seen, unconnected};
use node::restart::{Patience, Restart, Word};
use node::{Node, Notice};
use parking_lot::Mutex;
use protocol::Line;
use protocol::startup::{ACKS, LEASES, LISTEN, MEMBER};
use replica::ship::Heard;
use sql::engine::CheckCancelled;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::block_in_place;
use tokio::time::{Interval, interval};
use tracing::{error, info, warn};

/// How often the receiver is told that time has passed.
const TIME: Duration = Duration::from_millis(100);
/// How often the primary hears from us at least, so that it knows how old what we show is.
const TELL: Duration = Duration::from_millis(20);
/// How often who waits for a promotion looks whether he still may.
const LOOK: Duration = Duration::from_millis(10);
/// How often it is said at most that this replica is too slow.
const SLOW: Duration = Duration::from_secs(10);
/// How long the task may take to leave a connection.
const ANEW: Duration = Duration::from_secs(5);

/// The first answer of the primary. An error: it will never do.
type FirstWord = Option<Result<Word>>;

/// A request that this node becomes the primary.
struct Asked {
    force: bool,
    /// The term that the members have agreed on.
    named: Option<u64>,
    answer: std::sync::mpsc::Sender<Result<String>>,
}

/// What is asked of the task.
enum Request {
    TakeOver(Asked),
    /// Leave the connection and begin anew with what is known by now; answered when nothing of the old one is acknowledged any more.
    Anew(std::sync::mpsc::Sender<()>),
}

/// What follows a primary.
pub struct Follow {
    primary: Primary,
    name: String,
    /// Where this node takes clients.
    listen: Option<String>,
    node: Arc<Node>,
    env: Env,
    /// Whether to offer a ring for the log (`log_ring`); no more after one in which something was found that cannot be.
    offers: AtomicBool,
    /// Batches that came in a ring.
    in_ring: AtomicU64,
    /// None: it has run, or there is nothing to follow.
    receiving: Mutex<Option<Receiving>>,
    seen: Arc<Mutex<Seen>>,
    first: watch::Sender<FirstWord>,
    restart: watch::Sender<Option<Restart>>,
    requests: mpsc::UnboundedSender<Request>,
    incoming: Mutex<Option<mpsc::UnboundedReceiver<Request>>>,
}

impl Follow {
    /// `failed`: copies in a row that did not come. `offers`: whether a primary on this host may write into a ring here.
    pub fn new(
        primary: Primary,
        name: String,
        node: Arc<Node>,
        env: Env,
        failed: u32,
        offers: bool,
        listen: Option<SocketAddr>,
    ) -> Follow {
        let (requests, incoming) = mpsc::unbounded_channel();
        let options = Options {
            name: name.clone(),
            primary: primary.to_string(),
            failed,
            patience: Patience::default(),
        };
        let receiving = Receiving::new(node.clone(), options);
        let seen = receiving.as_ref().map(|r| r.seen().clone());
        Follow {
            seen: seen.unwrap_or_default(),
            primary,
            name,
            listen: listen.map(|a| a.to_string()),
            node,
            env,
            offers: AtomicBool::new(offers),
            in_ring: AtomicU64::new(0),
            // Nothing will say it where nothing is followed.
            first: watch::channel(receiving.is_none().then_some(Ok(Word::Silent))).0,
            restart: watch::channel(None).0,
            receiving: Mutex::new(receiving),
            requests,
            incoming: Mutex::new(Some(incoming)),
        }
    }

    pub fn primary(&self) -> &Primary {
        &self.primary
    }

    /// Whether the primary is heard.
    pub fn is_connected(&self) -> bool {
        self.seen.lock().connected
    }

    /// The number of the stream that flows now, if the primary has said over it what it has.
    pub fn told(&self) -> Option<u64> {
        let seen = self.seen.lock();
        (seen.connected && seen.told).then_some(seen.streams)
    }

    /// `connecting`, `streaming`, `stopped`, `promoted`.
    pub fn status(&self) -> &'static str {
        self.seen.lock().status
    }

    /// Batches that came in a ring that the primary writes.
    pub fn in_ring(&self) -> u64 {
        self.in_ring.load(Ordering::Relaxed)
    }

    /// Where the present connection's stream began.
    pub fn began(&self) -> Position {
        self.seen.lock().began
    }

    /// What the primary has said that it has, in the present connection or the last.
    pub fn claimed(&self) -> Position {
        self.seen.lock().claimed
    }

    /// Microseconds since 1970 at the last message.
    pub fn heard(&self) -> Option<i64> {
        self.seen.lock().heard
    }

    /// How old what is shown is, in microseconds, by our own clock: since we heard of it.
    pub fn age(&self) -> Option<i64> {
        self.look();
        self.seen.lock().age(self.env.clock.unix_micros())
    }

    /// What is on the disk here may lack what the primary has published in this time; none: that is not known.
    pub fn lacks(&self) -> Option<Duration> {
        let persisted = self.node.following()?.marks.persisted.get();
        let awake = (self.env.clock.boot_nanos() / 1000) as i64;
        let lacks = self.seen.lock().lacks(persisted, awake)?;
        Some(Duration::from_micros(lacks as u64))
    }

    /// The primary's time as of which everything is shown, microseconds since 1970.
    pub fn as_of(&self) -> Option<i64> {
        self.look();
        self.seen.lock().as_of()
    }

    /// Takes what has become visible into account.
    fn look(&self) {
        if let Some(f) = self.node.following() {
            self.seen.lock().shows(f.marks.visible.get());
        }
    }

    /// Waits for the primary's first word. An error: it will never do.
    pub async fn first_word(&self) -> Result<Word> {
        let mut rx = self.first.subscribe();
        let word = rx.wait_for(Option::is_some).await;
        let word = word.expect("the sender is ours").clone();
        word.expect("waited for")
    }

    /// Ready when the server has to start again.
    pub async fn restart(&self) -> Restart {
        let mut rx = self.restart.subscribe();
        let why = rx.wait_for(Option::is_some).await;
        why.expect("the sender is ours").expect("waited for")
    }

    /// Asks for a promotion and waits on this thread, as long as it is to go on. The report; `None`: not in time.
    ///
    /// The promotion goes on when nobody waits for it any more: the old primary may have sealed itself by then, and would be the primary of
    /// nobody if this node forgot what it had asked for.
    pub fn promote(
        &self,
        force: bool,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>> {
        if !force && !self.is_connected() {
            return Err(unconnected(&self.primary.to_string()));
        }
        self.take_over(force, None, wait, check_cancelled)
    }

    /// Takes over without its primary, in the term that the members have agreed on; else as [`Follow::promote`].
    pub fn promote_as(
        &self,
        term: u64,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>> {
        self.take_over(true, Some(term), wait, check_cancelled)
    }

    /// Leaves the connection to a primary of an older term than this node has heard of by now, or to one at an address that is not the primary's any
    /// more. When it returns, no connection from before acknowledges anything.
    pub fn begin_anew(&self) -> Result<()> {
        let (answer, answered) = std::sync::mpsc::channel();
        let gone = || Error::internal("nothing is followed any more");
        let anew = Request::Anew(answer);
        self.requests.send(anew).map_err(|_| gone())?;
        answered.recv_timeout(ANEW).map_err(|_| gone())
    }

    fn take_over(
        &self,
        force: bool,
        named: Option<u64>,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>> {
        let (answer, answered) = std::sync::mpsc::channel();
        let gone = || {
            let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
            Error::new(
                code,
                "this node follows no primary any more: it has been promoted, or stops",
            )
        };
        let asked = Request::TakeOver(Asked {
            force,
            named,
            answer,
        });
        self.requests.send(asked).map_err(|_| gone())?;
        let until = Instant::now() + wait;
        let answer = || loop {
            let left = until.saturating_duration_since(Instant::now());
            match answered.recv_timeout(left.min(LOOK)) {
                Ok(done) => return done.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    check_cancelled().map_err(|e| e.detail("The promotion goes on."))?;
                }
            }
        };
        tokio::task::block_in_place(answer)
    }

    /// Follows until this node is promoted, or has to start again.
    pub async fn run(&self) {
        let (Some(receiving), Some(incoming)) =
            (self.receiving.lock().take(), self.incoming.lock().take())
        else {
            return;
        };
        let Some(following) = self.node.following() else {
            return;
        };
        let [mut time, mut tell] = [TIME, TELL].map(interval);
        for i in [&mut time, &mut tell] {
            i.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        let mut task = Task {
            follow: self,
            receiving,
            incoming,
            moved: following.moved.clone(),
            out: Vec::new(),
            asked: Vec::new(),
            left: Vec::new(),
            time,
            tell,
            silent: false,
            slow: None,
        };
        task.run().await;
    }

    /// This term has begun.
    fn hears(&self, term: u64) {
        if let Some(member) = &self.primary.member {
            member.hears(term);
        }
    }

    /// Makes a ring for this connection and offers it.
    fn offer(&self, link: &mut CopyBoth<Line<TcpStream>>) -> Option<Offered> {
        let name = self.env.random.next_u64();
        match block_in_place(|| Offered::new(name)) {
            Ok(ring) => {
                link.send_with(|out| ring.offer().encode(out));
                Some(ring)
            }
            Err(e) => {
                info!(error = %e, "no shared memory: the log comes as messages");
                None
            }
        }
    }

    /// Something was found in a ring that no primary writes: from now on the log comes as messages.
    fn distrust(&self, e: &Error) -> Event {
        let primary = &self.primary;
        error!(%primary, "{}: no ring is offered any more", e.fields().message);
        self.offers.store(false, Ordering::Relaxed);
        Event::Lost
    }

    async fn connect(&self) -> Result<CopyBoth<Line<TcpStream>>> {
        let mut parameters = vec![
            ("replication", "canon"),
            ("application_name", &*self.name),
            (ACKS, "on"),
        ];
        parameters.extend(self.listen.as_deref().map(|at| (LISTEN, at)));
        let number = self.primary.number().map(|n| n.to_string());
        parameters.extend(number.as_deref().map(|n| (MEMBER, n)));
        if self.node.asks_for_leases() {
            parameters.push((LEASES, "on"));
        }
        let link = self.primary.connect(&parameters).await?;
        CopyBoth::begin(link, commands::LOG).await
    }
}

/// What the task does next.
enum Next {
    /// The connection goes on.
    Go,
    Connect(Duration),
    Promote(Option<u64>),
    End,
}

struct Task<'a> {
    follow: &'a Follow,
    receiving: Receiving,
    incoming: mpsc::UnboundedReceiver<Request>,
    moved: Arc<Notice>,
    out: Vec<Do>,
    /// Callers that wait for a promotion.
    asked: Vec<Asked>,
    /// Callers that wait until the connection is gone.
    left: Vec<std::sync::mpsc::Sender<()>>,
    time: Interval,
    tell: Interval,
    /// That no connection could be made was said, and none was made since.
    silent: bool,
    /// When it was last said that this replica is too slow.
    slow: Option<Instant>,
}

impl Task<'_> {
    async fn run(&mut self) {
        self.receiving.begin(&mut self.out);
        let mut next = self.obey(None);
        loop {
            next = match next {
                Next::Go => unreachable!("it connects, promotes or ends"),
                Next::Connect(after) => self.connect(after).await,
                Next::Promote(named) => self.promote(named).await,
                Next::End => return,
            };
        }
    }

    /// Until there is a connection, and then until that ends.
    async fn connect(&mut self, after: Duration) -> Next {
        for answer in self.left.drain(..) {
            _ = answer.send(());
        }
        let follow = self.follow;
        let mut connecting = std::pin::pin!(async {
            tokio::time::sleep(after).await;
            follow.connect().await
        });
        loop {
            let event = tokio::select! {
                link = &mut connecting => match link {
                    Ok(link) => {
                        self.silent = false;
                        return self.connected(link).await;
                    }
                    Err(e) => {
                        // Said once, not at every try.
                        if !std::mem::replace(&mut self.silent, true) {
                            warn!("{}", e.fields().message);
                        }
                        Event::Unreachable
                    }
                },
                r = self.incoming.recv() => self.asks(r),
                _ = self.time.tick() => Event::Time,
            };
            match self.happens(event, None) {
                Next::Go => {}
                next => return next,
            }
        }
    }

    async fn connected(&mut self, mut link: CopyBoth<Line<TcpStream>>) -> Next {
        let mut seen = self.moved.version();
        // This connection's own: what is written into it afterwards is read by nobody.
        let mut ring: Option<Offered> = None;
        let mut offers = self.follow.offers.load(Ordering::Relaxed);
        let mut next = self.happens(Event::Connected, Some(&mut link));
        loop {
            if !matches!(next, Next::Go) {
                // The last word, a Hello say, may still be on its way.
                _ = tokio::time::timeout(TIME, link.flush()).await;
                return next;
            }
            if self.receiving.is_streaming() && std::mem::take(&mut offers) {
                ring = self.follow.offer(&mut link);
            }
            // What a bell has told of comes before what is still on the connection.
            let event = match ring.as_mut().map_or(Ok(None), Offered::next) {
                Ok(Some(m)) => {
                    self.follow.in_ring.fetch_add(1, Ordering::Relaxed);
                    Event::Message(m)
                }
                Err(e) => self.follow.distrust(&e),
                Ok(None) => tokio::select! {
                    m = link.next_as(Heard::decode) => match m {
                        Ok(Heard::Message(m)) => Event::Message(m),
                        Ok(Heard::Medium(word)) => match ring.as_mut().map(|r| r.heard(word)) {
                            Some(Ok(true)) => continue,
                            Some(Ok(false)) => {
                                ring = None;
                                continue;
                            }
                            Some(Err(e)) => self.follow.distrust(&e),
                            None => self.follow.distrust(&broken("a word about a ring that there is not")),
                        },
                        Err(e) => {
                            warn!(primary = %self.follow.primary, "{}", e.fields().message);
                            Event::Lost
                        }
                    },
                    v = self.moved.since(seen), if self.receiving.hurries() => {
                        seen = v;
                        Event::Moved
                    }
                    _ = self.time.tick() => Event::Time,
                    _ = self.tell.tick() => Event::Tell,
                    r = self.incoming.recv() => self.asks(r),
                },
            };
            next = self.happens(event, Some(&mut link));
        }
    }

    async fn promote(&mut self, named: Option<u64>) -> Next {
        let node = self.receiving.node().clone();
        let done = tokio::task::spawn_blocking(move || node.promote_as(named)).await;
        let done = done.unwrap_or_else(|e| Err(Error::internal(e.to_string())));
        self.happens(Event::Promoted(done), None)
    }

    fn asks(&mut self, r: Option<Request>) -> Event {
        match r.expect("the other end is kept beside this task") {
            Request::TakeOver(asked) => {
                let (force, named) = (asked.force, asked.named);
                self.asked.push(asked);
                Event::TakeOver { force, named }
            }
            // The answer comes when the connection is dropped: where the next one is made.
            Request::Anew(answer) => {
                self.left.push(answer);
                Event::Anew
            }
        }
    }

    fn happens(&mut self, event: Event, link: Option<&mut CopyBoth<Line<TcpStream>>>) -> Next {
        self.receiving.handle(event, &mut self.out);
        self.obey(link)
    }

    /// Does what the node says.
    fn obey(&mut self, mut link: Option<&mut CopyBoth<Line<TcpStream>>>) -> Next {
        let mut next = Next::Go;
        while !self.out.is_empty() {
            for d in std::mem::take(&mut self.out) {
                match d {
                    Do::Send(m) => {
                        if let Some(link) = &mut link {
                            link.send(&m);
                        }
                    }
                    Do::Run(job) => {
                        let done = block_in_place(job);
                        self.receiving.handle(Event::Done(done), &mut self.out);
                    }
                    Do::Connect { after } => next = Next::Connect(after),
                    Do::Hears(term) => self.follow.hears(term),
                    Do::First(word) => _ = self.follow.first.send_replace(Some(word)),
                    Do::Promote { named } => next = Next::Promote(named),
                    Do::Answer(report) => {
                        for r in self.asked.drain(..) {
                            _ = r.answer.send(report.clone());
                        }
                    }
                    Do::Leads => next = Next::End,
                    Do::StartAgain(why) => {
                        self.follow.restart.send_replace(Some(why));
                        next = Next::End;
                    }
                    Do::Stop(e) => {
                        error!("this replica follows no more: {e}");
                        next = Next::End;
                    }
                    Do::Note(note) => self.note(note),
                }
            }
        }
        next
    }

    fn note(&mut self, note: Note) {
        let primary = &self.follow.primary;
        match note {
            Note::Follows => info!(%primary, "following"),
            Note::Terms(_) => {}
            Note::TooSlow { from, overruns } => {
                if self.slow.is_none_or(|said| said.elapsed() > SLOW) {
                    self.slow = Some(Instant::now());
                    warn!(%primary, %from, overruns, "this replica is too slow: what it had no room for is read again from its primary's log");
                }
            }
            Note::PutOff { why, pause } => warn!(
                %primary,
                ?pause,
                "{}, and the last copy did not come: going on with what is here until the next is begun",
                why.reason()
            ),
            Note::ShowsOwnLog(word) => {
                let why = match word {
                    Word::PutOff => "its copy has still to come",
                    _ => "it does not answer",
                };
                warn!(%primary, "serving what is here without the primary's log: {why}");
            }
            Note::HandedOver(last) => info!(%last, "the old primary has handed over"),
            Note::Promoted(report) => info!("{report}"),
            Note::NotPromoted(e) => error!("not promoted: {e}"),
            Note::NotHandedOver => {
                warn!("not promoted: the connection to the primary ended before it had handed over")
            }
            Note::Ends(why) => warn!(%primary, "{why}"),
            Note::Failed { what, why } => error!("{what}: {why}"),
        }
    }
}
