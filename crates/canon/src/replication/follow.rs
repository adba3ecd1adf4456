//! The replica's side of its connection: a task that does what `replica::ship::Receiver` says.
//!
//! ```text
//! primary ══▶ ship::Receiver ──▶ the node's ring ──▶ (node) own log, replay ──▶ visible
//!         ══▶ ring that both map (`log_ring`), with a bell ──▶ the same Receiver
//!         ◀══ acknowledgements ◀───────────────────────── marks moved
//! ```
//! The task lives as long as the node is a replica. It connects again when the connection ends, says why, and serves requests to take
//! over: **planned**, the primary is asked to seal itself and hands over what is missing; **forced**, nobody is asked. What cannot be
//! done with an open database (a copy from the beginning, setting aside what the cluster's history does not have) it
//! asks of the server ([`Restart`]).

use super::Primary;
use super::bootstrap;
use super::copy_both::{CopyBoth, broken};
use super::log_ring::Offered;
use super::restart::{Restart, Word};
use super::send::COMMAND as START_REPLICATION;
use base::{Error, Position, Result, SqlState};
use env::Env;
use node::{Following, Node};
use parking_lot::Mutex;
use protocol::startup::LISTEN;
use replica::ship::receiver::{Command, Event};
use replica::ship::{Acked, Freshness, Heard, Identity, Message, Receiver, RingWriter};
use sql::engine::GoOn;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

/// How often the receiver is told that time has passed.
const TIME: Duration = Duration::from_millis(100);
/// How often the primary hears from us at least, so that it knows how old what we show is.
const ACK: Duration = Duration::from_millis(20);
/// How often who waits for a promotion looks whether he still may.
const LOOK: Duration = Duration::from_millis(10);
/// How often it is said at most that this replica is too slow.
const SLOW: Duration = Duration::from_secs(10);
/// How long the task may take to leave a connection.
const ANEW: Duration = Duration::from_secs(5);
/// Longest pause between tries to connect.
const MOST_BACKOFF: Duration = Duration::from_secs(5);

mod take_over;

/// The first answer of the primary. An error: it will never do.
type FirstWord = Option<Result<Word>>;

/// Somebody wants this node to become the primary.
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

#[derive(Default)]
struct State {
    connected: bool,
    status: &'static str,
    began: Position,
    /// Our clock at the last message, microseconds since 1970.
    heard: Option<i64>,
    /// The primary has said that it has everything up to here.
    claimed: Position,
    /// Commits that had come, and when, about once a second for the last ten.
    pace: VecDeque<(i64, u64)>,
    /// By our clock: when what is shown was heard of. By the primary's: when it was sent.
    age: Freshness,
    sent: Freshness,
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
    /// Copies in a row that did not come, and when the next may be begun.
    failed: u32,
    copy_from: Instant,
    state: Mutex<State>,
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
        Follow {
            primary,
            name,
            listen: listen.map(|a| a.to_string()),
            node,
            env,
            offers: AtomicBool::new(offers),
            in_ring: AtomicU64::new(0),
            failed,
            copy_from: Instant::now() + bootstrap::pause(failed),
            state: Mutex::new(State {
                status: "connecting",
                ..State::default()
            }),
            first: watch::channel(None).0,
            restart: watch::channel(None).0,
            requests,
            incoming: Mutex::new(Some(incoming)),
        }
    }

    pub fn primary(&self) -> &Primary {
        &self.primary
    }

    /// Whether the primary is heard.
    pub fn is_connected(&self) -> bool {
        self.state.lock().connected
    }

    /// `connecting`, `streaming`, `stopped`, `promoted`.
    pub fn status(&self) -> &'static str {
        self.state.lock().status
    }

    /// Batches that came in a ring that the primary writes.
    pub fn in_ring(&self) -> u64 {
        self.in_ring.load(Ordering::Relaxed)
    }

    /// Where the present connection's stream began.
    pub fn began(&self) -> Position {
        self.state.lock().began
    }

    /// What the primary has said that it has, in the present connection or the last.
    pub fn claimed(&self) -> Position {
        self.state.lock().claimed
    }

    /// Microseconds since 1970 at the last message.
    pub fn heard(&self) -> Option<i64> {
        self.state.lock().heard
    }

    /// How old what is shown is, in microseconds, by our own clock: since we heard of it.
    pub fn age(&self) -> Option<i64> {
        self.look();
        self.state.lock().age.age(self.env.clock.unix_micros())
    }

    /// The primary's time as of which everything is shown, microseconds since 1970.
    pub fn as_of(&self) -> Option<i64> {
        self.look();
        self.state.lock().sent.as_of()
    }

    /// Takes what has become visible into account.
    fn look(&self) {
        if let Some(f) = self.node.following() {
            let visible = f.marks.visible.get();
            let mut s = self.state.lock();
            s.age.reached(visible, i64::MAX);
            s.sent.reached(visible, i64::MAX);
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

    fn say_first(&self, word: Result<Word>) {
        self.first.send_if_modified(|w| {
            let first = w.is_none();
            if first {
                *w = Some(word);
            }
            first
        });
    }

    /// 55000 for who wants to be handed over to.
    fn unconnected(&self) -> Error {
        Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "the primary {} is not connected and cannot hand over",
                self.primary
            ),
        )
        .hint("If it is down for good: canon promote --force --old-primary-is-down.")
    }

    /// Asks for a promotion and waits on this thread, as long as it is to go on. The report; `None`: not in time.
    ///
    /// The promotion goes on when nobody waits for it any more: the old primary may have sealed itself by then, and would be the primary of
    /// nobody if this node forgot what it had asked for.
    pub fn promote(&self, force: bool, wait: Duration, go_on: GoOn<'_>) -> Result<Option<String>> {
        if !force && !self.is_connected() {
            return Err(self.unconnected());
        }
        self.take_over(force, None, wait, go_on)
    }

    /// Takes over without its primary, in the term that the members have agreed on; else as [`Follow::promote`].
    pub fn promote_as(&self, term: u64, wait: Duration) -> Result<Option<String>> {
        self.take_over(true, Some(term), wait, &|| Ok(()))
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
        go_on: GoOn<'_>,
    ) -> Result<Option<String>> {
        let (answer, answered) = std::sync::mpsc::channel();
        let gone = || Error::internal("nothing is followed any more");
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
                    go_on().map_err(|e| e.detail("The promotion goes on."))?;
                }
            }
        };
        tokio::task::block_in_place(answer)
    }

    /// Follows until this node is promoted, or has to start again.
    pub async fn run(&self) {
        let (Some(following), Some(incoming)) =
            (self.node.following(), self.incoming.lock().take())
        else {
            return;
        };
        let Some(ring) = following.take_ring() else {
            return;
        };
        let mut task = Task {
            follow: self,
            following: following.clone(),
            receiver: self.receiver(&following, &ring),
            ring,
            commands: Vec::new(),
            asked: Vec::new(),
            anew: false,
            pause: None,
            slow: None,
        };
        let why = task.run(incoming).await;
        following.return_ring(task.ring);
        let mut s = self.state.lock();
        s.connected = false;
        s.status = why;
    }

    /// This term has begun.
    fn hears(&self, term: u64) {
        if let Some(member) = &self.primary.member {
            member.hears(term);
        }
    }

    /// One that is not connected yet, of what is here.
    fn receiver(&self, following: &Following, ring: &RingWriter) -> Receiver {
        Receiver::new(Identity {
            cluster: self.node.cluster(),
            node: self.name.clone(),
            terms: self.node.terms(),
            heard: self.node.heard_term(),
            last: following.marks.received.get(),
            ring: ring.ring().size(),
        })
    }
}

/// How a connection ended.
enum End {
    /// Connect again.
    Lost,
    /// This node becomes the primary: as this report begins.
    TakeOver(String),
    /// No more connections.
    Stop,
}

struct Task<'a> {
    follow: &'a Follow,
    following: Arc<Following>,
    receiver: Receiver,
    ring: RingWriter,
    commands: Vec<Command>,
    /// Who waits for a promotion.
    asked: Vec<Asked>,
    /// It was told to begin anew: failures from before count no more.
    anew: bool,
    /// Before the next connection.
    pause: Option<Duration>,
    /// When it was last said that this replica is too slow.
    slow: Option<Instant>,
}

impl Task<'_> {
    /// The status that it ends with.
    async fn run(&mut self, mut incoming: mpsc::UnboundedReceiver<Request>) -> &'static str {
        let mut failures = 0u32;
        let mut silent = false;
        loop {
            let pause = self.pause.take().unwrap_or_else(|| {
                let step = Duration::from_millis(50) * (1 << failures.min(8));
                if failures == 0 {
                    Duration::ZERO
                } else {
                    step.min(MOST_BACKOFF)
                }
            });
            let end = tokio::select! {
                link = async {
                    tokio::time::sleep(pause).await;
                    self.follow.connect().await
                } => match link {
                    Ok(link) => {
                        (failures, silent) = (0, false);
                        self.connected(link, &mut incoming).await
                    }
                    Err(e) => {
                        // Said once, not at every try.
                        if !std::mem::replace(&mut silent, true) {
                            warn!("{}", e.fields().message);
                        }
                        failures += 1;
                        End::Lost
                    }
                },
                r = incoming.recv() => match self.request(r) {
                    Some(end) => end,
                    None => End::Lost,
                }
            };
            if std::mem::take(&mut self.anew) {
                failures = 0;
            }
            {
                let mut s = self.follow.state.lock();
                (s.connected, s.status) = (false, "connecting");
            }
            match end {
                End::Lost => {
                    // Whoever asked to be handed over to asks again: the next primary may be another.
                    if !self.asked.is_empty() {
                        warn!(
                            "not promoted: the connection to the primary ended before it had handed over"
                        );
                    }
                    for r in self.asked.drain(..) {
                        _ = r.answer.send(Err(Error::new(
                            SqlState::CONNECTION_FAILURE,
                            "the connection to the primary ended before it had handed over",
                        )
                        .hint("Ask again when it is connected.")));
                    }
                    self.receiver
                        .handle(Event::Disconnected, &mut self.commands);
                    self.between();
                }
                End::TakeOver(words) => {
                    if self.take_over(&words).await {
                        return "promoted";
                    }
                    if self.following.has_ended() {
                        self.start_again(Restart::Stranded);
                        return "stopped";
                    }
                }
                End::Stop => return "stopped",
            }
        }
    }

    /// What is to be done without a connection: only to wait.
    fn between(&mut self) {
        for c in std::mem::take(&mut self.commands) {
            if let Command::Reconnect { after_millis } = c {
                self.pause = Some(Duration::from_millis(after_millis));
            }
        }
    }

    /// More came than replay could take, and the ring was written over: from there on the log is read again.
    fn too_slow(&mut self, from: Position) {
        if self.slow.is_none_or(|said| said.elapsed() > SLOW) {
            self.slow = Some(Instant::now());
            let overruns = self.following.stats.overruns.load(Ordering::Relaxed);
            let primary = &self.follow.primary;
            warn!(%primary, %from, overruns, "this replica is too slow: what it had no room for is read again from its primary's log");
        }
    }

    /// Something was found in a ring that no primary writes: from now on the log comes as messages.
    fn distrust(&self, e: &Error) -> End {
        let primary = &self.follow.primary;
        error!(%primary, "{}: no ring is offered any more", e.fields().message);
        self.follow.offers.store(false, Ordering::Relaxed);
        End::Lost
    }

    async fn connected(
        &mut self,
        mut link: CopyBoth<TcpStream>,
        incoming: &mut mpsc::UnboundedReceiver<Request>,
    ) -> End {
        self.receiver.handle(Event::Connected, &mut self.commands);
        let moved = self.following.moved.clone();
        let mut seen = moved.version();
        let mut time = tokio::time::interval(TIME);
        let mut ack = tokio::time::interval(ACK);
        for i in [&mut time, &mut ack] {
            i.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        let mut echo = 0;
        // This connection's own: whoever goes on writing into it afterwards writes for nobody.
        let mut ring: Option<Offered> = None;
        let mut offers = self.follow.offers.load(Ordering::Relaxed);
        loop {
            if let Some(end) = self.obey(&mut link) {
                // The last word, a Hello say, may still be on its way.
                _ = tokio::time::timeout(TIME, link.flush()).await;
                return end;
            }
            if self.receiver.is_streaming() && std::mem::take(&mut offers) {
                ring = self.follow.offer(&mut link);
            }
            // What a bell has told of comes before what is still on the connection.
            match ring.as_mut().map_or(Ok(None), Offered::next) {
                Ok(None) => {}
                Ok(Some(m)) => {
                    self.follow.in_ring.fetch_add(1, Ordering::Relaxed);
                    echo = self.heard(&m).max(echo);
                    self.receiver.handle(Event::Message(m), &mut self.commands);
                    continue;
                }
                Err(e) => return self.distrust(&e),
            }
            tokio::select! {
                m = link.next_as(Heard::decode) => match m {
                    Ok(Heard::Message(m)) => {
                        echo = self.heard(&m).max(echo);
                        self.receiver.handle(Event::Message(m), &mut self.commands);
                    }
                    Ok(Heard::Medium(word)) => match ring.as_mut().map(|r| r.heard(word)) {
                        Some(Ok(true)) => {}
                        Some(Ok(false)) => ring = None,
                        Some(Err(e)) => return self.distrust(&e),
                        None => return self.distrust(&broken("a word about a ring that there is not")),
                    },
                    Err(e) => {
                        warn!(primary = %self.follow.primary, "{}", e.fields().message);
                        return End::Lost;
                    }
                },
                v = moved.since(seen) => {
                    seen = v;
                    if self.following.take_overrun() {
                        let from = self.following.marks.received.get();
                        self.too_slow(from);
                        self.receiver.handle(Event::Overrun { from }, &mut self.commands);
                    }
                    let marks = self.marks();
                    self.receiver.handle(Event::Moved(marks), &mut self.commands);
                    if let Some(e) = self.following.failure() {
                        error!("replay has stopped: {e}");
                        return End::Stop;
                    }
                }
                _ = time.tick() => self.receiver.handle(Event::Time, &mut self.commands),
                _ = ack.tick() => {
                    self.follow.look();
                    if self.receiver.is_streaming() {
                        let m = self.marks();
                        link.send(&Message::Ack {
                            term: self.receiver.term(),
                            received: m.received,
                            persisted: m.persisted,
                            applied: m.applied,
                            visible: m.visible,
                            echo_micros: echo,
                        });
                    }
                }
                r = incoming.recv() => if let Some(end) = self.request(r) {
                    return end;
                },
            }
        }
    }

    /// Read from the last to the first, so that growth meanwhile leaves them in order.
    fn marks(&self) -> Acked {
        let m = &self.following.marks;
        let visible = m.visible.get();
        let applied = m.applied.get();
        let persisted = m.persisted.get();
        let received = m.received.get();
        Acked {
            received,
            persisted,
            applied,
            visible,
        }
    }

    /// A message came. The primary's time in it, or 0.
    fn heard(&self, m: &Message) -> i64 {
        let now = self.follow.env.clock.unix_micros();
        let mut s = self.follow.state.lock();
        s.heard = Some(now);
        let Some(step) = m.step() else { return 0 };
        s.claimed = s.claimed.max(step.current());
        let last = s.pace.back().map_or(0, |p| p.0);
        if now - last >= 1_000_000 {
            let commits = self.following.commits();
            s.pace.push_back((now, commits));
            if s.pace.len() > 10 {
                s.pace.pop_front();
            }
        }
        s.age.heard(&step, now);
        s.sent.heard(&step, step.sent_micros);
        step.sent_micros
    }

    /// Does what the receiver says. The end of the connection, if it says so.
    fn obey(&mut self, link: &mut CopyBoth<TcpStream>) -> Option<End> {
        let mut end = None;
        for c in std::mem::take(&mut self.commands) {
            match c {
                Command::Send(m) => link.send(&m),
                Command::Write { message, restart } => {
                    if restart {
                        self.ring.restart();
                    }
                    let env = &self.follow.env;
                    self.following
                        .take(&mut self.ring, &message.to_bytes(), env);
                }
                Command::Published(p) => self.following.published(self.receiver.term(), p),
                Command::SetTerms(terms) => {
                    let dir = self.follow.node.dir();
                    let set = tokio::task::block_in_place(|| dir.set_terms(&terms));
                    if let Err(e) = set {
                        error!("the terms could not be written: {e}");
                        return Some(End::Lost);
                    }
                    // Strong reads ask this primary from now on, and no older one.
                    let term = self.receiver.term();
                    self.follow.hears(term);
                    self.following.published(term, Position::ZERO);
                }
                Command::BeginBootstrap { terms, .. } => {
                    let term = terms.last().map_or(0, |t| t.0);
                    let dir = self.follow.node.dir();
                    if let Err(e) = tokio::task::block_in_place(|| dir.hear(term)) {
                        error!("the term could not be written: {e}");
                        return Some(End::Lost);
                    }
                    self.follow.hears(term);
                    self.following.heard_of(term);
                    let failed = self.follow.failed;
                    return self.in_time(Restart::Bootstrap { failed });
                }
                Command::Diverged { at, term } => {
                    let failed = self.follow.failed;
                    return self.in_time(Restart::Diverged { at, term, failed });
                }
                Command::ReadAround(at) => {
                    if let Err(e) = self.read_around(at) {
                        error!("the log could not be read: {e}");
                        return Some(End::Lost);
                    }
                }
                Command::Refuse(why) => {
                    let e = Error::new(
                        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                        format!("{} cannot be followed: {why}", self.follow.primary),
                    );
                    error!("{e}");
                    self.follow.say_first(Err(e));
                    return Some(End::Stop);
                }
                Command::HandedOver { last, .. } => {
                    info!(%last, "the old primary has handed over");
                    let words = format!("The old primary handed over at {last}; nothing is lost.");
                    return Some(End::TakeOver(words));
                }
                Command::Close(why) => {
                    warn!(primary = %self.follow.primary, "{why}");
                    end = Some(End::Lost);
                }
                Command::Reconnect { after_millis } => {
                    self.pause = Some(Duration::from_millis(after_millis));
                    end = Some(End::Lost);
                }
                // These come only after BeginBootstrap.
                Command::Store { .. } | Command::FinishBootstrap => {}
            }
        }
        if end.is_none() && !self.commands.is_empty() {
            return self.obey(link);
        }
        let streaming = end.is_none() && self.receiver.is_streaming();
        let mut s = self.follow.state.lock();
        if streaming && !s.connected {
            (s.connected, s.status) = (true, "streaming");
            s.began = self.following.marks.received.get();
            // A primary that began again may have lost what it had published, and its disk had not.
            s.claimed = s.began;
            let (began, s) = (s.began, &mut *s);
            s.age.forget_beyond(began);
            s.sent.forget_beyond(began);
            // It leads no more, if it ever did.
            let dir = self.follow.node.dir();
            if let Err(e) = tokio::task::block_in_place(|| dir.follow()) {
                error!("that this node follows could not be written: {e}");
            }
            info!(primary = %self.follow.primary, "following");
            self.follow.say_first(Ok(Word::Agreed));
        }
        end
    }

    fn read_around(&mut self, at: Position) -> wal::Result<()> {
        let dir = self.follow.node.dir();
        let around = tokio::task::block_in_place(|| dir.around(at))?;
        let read = Event::AroundRead(Box::new(around));
        self.receiver.handle(read, &mut self.commands);
        Ok(())
    }

    fn unseal(&self) {
        let dir = self.follow.node.dir();
        let agreed = || dir.unseal().and_then(|()| dir.agree());
        if let Err(e) = tokio::task::block_in_place(agreed) {
            error!("the seal could not be removed: {e}");
        }
    }

    /// A copy is needed. Not soon after one that did not come: until then the node goes on with what it has, but for one that holds what the
    /// cluster does not have, which has to know that first.
    fn in_time(&mut self, why: Restart) -> Option<End> {
        let pause = self
            .follow
            .copy_from
            .saturating_duration_since(Instant::now());
        let knows =
            matches!(why, Restart::Bootstrap { .. }) || self.follow.node.diverged().is_some();
        if pause.is_zero() || !knows {
            return self.start_again(why);
        }
        warn!(
            primary = %self.follow.primary,
            ?pause,
            "{}, and the last copy did not come: going on with what is here until the next is begun",
            why.reason()
        );
        self.follow.say_first(Ok(Word::PutOff));
        self.receiver = self.follow.receiver(&self.following, &self.ring);
        self.pause = Some(pause);
        Some(End::Lost)
    }

    fn start_again(&mut self, why: Restart) -> Option<End> {
        self.follow.say_first(Ok(Word::StartAgain(why)));
        self.follow.restart.send_replace(Some(why));
        Some(End::Stop)
    }
}

impl Follow {
    /// Makes a ring for this connection and offers it.
    fn offer(&self, link: &mut CopyBoth<TcpStream>) -> Option<Offered> {
        let name = self.env.random.next_u64();
        match tokio::task::block_in_place(|| Offered::new(name)) {
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

    async fn connect(&self) -> Result<CopyBoth<TcpStream>> {
        let mut parameters = vec![("replication", "canon"), ("application_name", &*self.name)];
        parameters.extend(self.listen.as_deref().map(|at| (LISTEN, at)));
        let link = self.primary.connect(&parameters).await?;
        CopyBoth::begin(link, START_REPLICATION).await
    }
}
