//! One client: messages between it and whichever node it is at.
//!
//! ```text
//! client ─▶ cin ─▶ Track ─▶ bout ─▶ node          read only while what it would fill is below its mark,
//! client ◀─ cout ◀─ Track ◀─ bin ◀─ node          so a client that does not read stops its own session and nothing else
//! ```
//! Messages go from one buffer to the other; the track says which of them, and what to do when the node is lost. Of a long message the track
//! sees the head, and the rest goes the way of that, or nowhere when the node is lost. A move opens the new node first, gives it what the
//! session has, and then lets go of the old one.

use super::door::{begin, elsewhere, farewell, hello, may_be_plain, none};
use super::end::{CHUNK, End, MAX_WORD, gone};
use super::hello::Hello;
use super::route::{Attrs, Event, NodeId, SessionId};
use super::shared::{Client, Counters, HELLO_LIMIT, LINGER, PAUSE, Proxy, TELL};
use super::track::{Carry, Heard, Loss, Said, Track, rollback};
use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use protocol::link::cancel;
use protocol::startup::SESSION_USER;
use protocol::{Line, Link};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tracing::debug;

/// Bytes that wait to be written before reading stops.
const HIGH_WATER: usize = 256 << 10;

/// A text of more bytes is read where that holds no other session up.
const READ_AT_ONCE: usize = 256 << 10;

/// The node that a session is at.
struct Back {
    end: End,
    node: NodeId,
}

struct Session {
    proxy: Arc<Proxy>,
    id: SessionId,
    own: Arc<Client>,
    hello: Hello,
    attrs: Attrs,
    front: End,
    back: Back,
    track: Track,
    /// The rest of the client's message goes to the node.
    passes: bool,
    /// The node has said that it ends the connection, and whether it ran nothing of what is pending.
    ending: Option<bool>,
    /// Until when other nodes are tried for what one has refused.
    until: Instant,
}

/// Serves a client until it goes.
pub async fn serve(
    proxy: Arc<Proxy>,
    stream: TcpStream,
    address: SocketAddr,
    attrs: Attrs,
    greets: Greets,
) {
    let mut front = End::new(Line::Plain(stream), &[]);
    front.most = MAX_WORD;
    let started = tokio::time::timeout(HELLO_LIMIT, hello(&proxy, &mut front)).await;
    drop(greets);
    let hello = match started {
        Ok(Ok(Some(hello))) => match may_be_plain(&proxy, &front, &address) {
            Ok(()) => hello,
            Err(e) => return farewell(front, &e).await,
        },
        Ok(Err(e)) => return farewell(front, &e).await,
        Ok(Ok(None)) | Err(_) => return,
    };
    let own = Arc::new(Client {
        secret: random(&proxy),
        wake: tokio::sync::Notify::new(),
        move_on: false.into(),
        pull: 0.into(),
        at: Default::default(),
    });
    let Some(id) = register(&proxy, &own) else {
        Counters::add(&proxy.counters.refused);
        let e = Error::new(
            SqlState::TOO_MANY_CONNECTIONS,
            "sorry, too many clients already",
        );
        return farewell(front, &e).await;
    };
    let _left = Left(proxy.clone(), id);
    Counters::add(&proxy.counters.accepted);
    let attrs = hello.attrs.unwrap_or(attrs);
    let endpoint = matches!(attrs, Attrs::Any | Attrs::Primary);
    let mut track = Track::new(endpoint);
    let began = begin(
        &proxy, id, &own, &hello, attrs, address, &mut front, &mut track,
    )
    .await;
    let back = match began {
        Ok(Some((end, node))) => Back { end, node },
        Ok(None) => return,
        Err(e) => return farewell(front, &e).await,
    };
    front.is_clients();
    let mut session = Session {
        proxy,
        id,
        own,
        hello,
        attrs,
        front,
        back,
        track,
        passes: false,
        ending: None,
        until: Instant::now(),
    };
    if let Err(e) = session.run().await {
        debug!(code = %e.code(), error = %e, "a client is gone");
        if e.code() != SqlState::CONNECTION_FAILURE {
            farewell(session.front, &e).await;
        }
    }
}

/// A connection is counted until it has said what it wants.
pub struct Greets(Arc<Proxy>);

impl Greets {
    /// None: as many have said nothing yet as there may be clients.
    pub fn new(proxy: &Arc<Proxy>) -> Option<Greets> {
        let greets = Greets(proxy.clone());
        let before = proxy.greeting.fetch_add(1, Ordering::SeqCst);
        (before < proxy.options.max_connections).then_some(greets)
    }
}

impl Drop for Greets {
    fn drop(&mut self) {
        self.0.greeting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The client is counted until it is gone.
struct Left(Arc<Proxy>, SessionId);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.clients.lock().remove(&self.1);
        self.0.event(Event::Ended(self.1));
    }
}

fn random(proxy: &Proxy) -> i32 {
    let mut bytes = [0; 4];
    proxy.env.random.fill(&mut bytes);
    i32::from_be_bytes(bytes)
}

fn register(proxy: &Proxy, own: &Arc<Client>) -> Option<SessionId> {
    let mut all = proxy.clients.lock();
    if all.len() >= proxy.options.max_connections {
        return None;
    }
    let id = loop {
        let n = proxy.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        if n != 0 && !all.contains_key(&n) {
            break n;
        }
    };
    all.insert(id, own.clone());
    Some(id)
}

/// What a wait of a session ended with.
enum Woke {
    Go,
    Front(io::Result<()>),
    Back(io::Result<()>),
}

impl Session {
    async fn run(&mut self) -> Result<()> {
        loop {
            // The node first: what it has said stands before what the client says next.
            self.hear_node().await?;
            if !self.hear_client().await? {
                return Ok(());
            }
            if self.track.is_idle() && self.proxy.closing.load(Ordering::SeqCst) {
                self.front.flush().await.map_err(|e| gone(&e))?;
                return Err(Error::new(SqlState::ADMIN_SHUTDOWN, ""));
            }
            if self.track.is_between() {
                if let Some(primary) = self.track.leaves() {
                    self.leave(primary).await?;
                    continue;
                }
                if self.track.forgets() {
                    let here = self.back.node;
                    if let Err(e) = self.attach(here, self.attrs, Block::None).await {
                        debug!(error = %e, "the node gives no other connection");
                    }
                    continue;
                }
                if self.own.move_on.swap(false, Ordering::SeqCst) {
                    self.consider_moving().await?;
                }
            }
            let pull = self.own.pull.swap(0, Ordering::SeqCst);
            if pull > 0 && self.track.waits(pull > 1) {
                self.pulled().await?;
                continue;
            }
            match self.wait().await {
                Woke::Go => {}
                Woke::Front(r) => r.map_err(|e| gone(&e))?,
                Woke::Back(Ok(())) => {}
                Woke::Back(Err(_)) => self.lost().await?,
            }
        }
    }

    async fn wait(&mut self) -> Woke {
        let End {
            reader: from_client,
            writer: to_client,
            input: cin,
            output: cout,
            ..
        } = &mut self.front;
        let End {
            reader: from_node,
            writer: to_node,
            input: bin,
            output: bout,
            rest,
            ..
        } = &mut self.back.end;
        let read = cout.len() < HIGH_WATER;
        // What the client says may be answered here.
        let mut room = (read, read && bout.len() < HIGH_WATER);
        let takes = !self.track.drains() && *rest == 0;
        room.1 &= takes || cin.len() < HIGH_WATER;
        let waiting = (!cout.is_empty(), !bout.is_empty());
        cin.reserve(CHUNK);
        bin.reserve(CHUNK);
        let some = |r: io::Result<usize>| match r {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            r => r.map(drop),
        };
        tokio::select! {
            biased;
            r = to_client.write_buf(cout), if waiting.0 => Woke::Front(r.map(drop)),
            r = from_node.read_buf(bin), if room.0 => Woke::Back(some(r)),
            // An error of writing shows when reading, after what the node has said last.
            r = to_node.write_buf(bout), if waiting.1 => {
                if r.is_err() {
                    bout.clear();
                }
                Woke::Go
            }
            r = from_client.read_buf(cin), if room.1 => Woke::Front(some(r)),
            () = self.own.wake.notified() => Woke::Go,
        }
    }

    /// Takes the client's messages; false: it has said that it goes.
    async fn hear_client(&mut self) -> Result<bool> {
        // An answer of ours does not stand in the middle of a message of the node.
        while self.back.end.rest == 0
            && self.back.end.output.len() < HIGH_WATER
            && self.front.output.len() < HIGH_WATER
        {
            if self.front.rest > 0 {
                let Some(piece) = self.front.piece() else {
                    break;
                };
                if self.passes {
                    self.back.end.put(&piece);
                }
                continue;
            }
            // What belongs to a COPY that is under way goes through, and the client may go.
            let kind = self.front.input.first();
            if self.track.drains() && !matches!(kind, Some(b'd' | b'c' | b'f' | b'X')) {
                break;
            }
            let Some((kind, m)) = self.front.message()? else {
                break;
            };
            let said = match self.front.rest {
                0 if m.len() > READ_AT_ONCE => {
                    tokio::task::block_in_place(|| self.track.client(kind, &m))
                }
                0 => self.track.client(kind, &m),
                _ => self.track.begun(kind, &m),
            };
            self.passes = matches!(said, Said::Forward | Said::Both(_));
            match said {
                Said::Forward => self.back.end.put(&m),
                Said::Nothing => {}
                Said::Both(r) => {
                    self.front.put(&r);
                    self.back.end.put(&m);
                }
                Said::Ends(r) => {
                    if !r.is_empty() {
                        Counters::add(&self.proxy.counters.told);
                    }
                    self.front.put(&r);
                    self.back.end.put(&rollback());
                }
                Said::Reply(r) => {
                    if r.first() == Some(&b'E') {
                        Counters::add(&self.proxy.counters.told);
                    }
                    self.front.put(&r);
                }
                Said::Terminate => {
                    _ = tokio::time::timeout(LINGER, self.front.flush()).await;
                    self.back.end.put(&m);
                    _ = tokio::time::timeout(LINGER, self.back.end.flush()).await;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn hear_node(&mut self) -> Result<()> {
        let mut before = Vec::new();
        while self.front.output.len() < HIGH_WATER {
            if self.back.end.rest > 0 {
                let Some(piece) = self.back.end.piece() else {
                    break;
                };
                self.front.put(&piece);
                continue;
            }
            let Some((kind, m)) = self.back.end.message()? else {
                break;
            };
            let heard = self.track.node(kind, &m, &mut before);
            self.front.put(&before);
            before.clear();
            match heard {
                Heard::Forward => self.front.put(&m),
                Heard::Nothing => {}
                Heard::Last => {
                    self.front.put(&m);
                    return self.close().await;
                }
                Heard::Ending { nothing_run } => self.ending = Some(nothing_run),
                Heard::Elsewhere {
                    bytes,
                    primary,
                    tries,
                    opening,
                } => self.send_on(&bytes, &opening, primary, tries).await?,
            }
        }
        Ok(())
    }

    /// The node has refused, as so many have now: sends these to another one.
    async fn send_on(
        &mut self,
        bytes: &[u8],
        opening: &[String],
        primary: bool,
        tries: u32,
    ) -> Result<()> {
        Counters::add(&self.proxy.counters.reruns);
        match tries {
            1 => self.until = Instant::now() + self.proxy.options.patience,
            _ => tokio::time::sleep(PAUSE).await,
        }
        let here = self.back.node;
        self.proxy.refused(here);
        let attrs = takes_refused(self.attrs, primary);
        let relocated = match Instant::now() < self.until {
            true => {
                let block = Block::Open(opening);
                self.relocate(attrs, Some(here), self.until, block).await
            }
            false => Err(Error::new(
                SqlState::CANNOT_CONNECT_NOW,
                "every node has refused for as long as the proxy tries",
            )),
        };
        match relocated {
            Ok(()) => self.back.end.put(bytes),
            Err(e) if e.code() == SqlState::CANNOT_CONNECT_NOW => {
                Counters::add(&self.proxy.counters.told);
                let reply = self.track.refused(primary, &e.fields().message);
                self.front.put(&reply);
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// The connection to the node has ended.
    async fn lost(&mut self) -> Result<()> {
        let nothing_run = self.ending.take();
        Counters::add(&self.proxy.counters.losses);
        if self.back.end.rest > 0 {
            // The client has a part of a message, and nothing else can follow that.
            return self.close().await;
        }
        let node = self.back.node;
        if nothing_run.is_none() {
            // It did not say goodbye.
            self.proxy.event(Event::Down(node));
            self.proxy.ask();
        }
        let until = Instant::now() + self.proxy.options.patience;
        match self.track.lost(nothing_run == Some(true)) {
            Loss::Silent(bytes) => {
                if !bytes.is_empty() {
                    Counters::add(&self.proxy.counters.reruns);
                }
                self.relocate(self.attrs, Some(node), until, Block::None)
                    .await?;
                self.back.end.put(&bytes);
            }
            Loss::Told {
                reply,
                failed_block,
            } => {
                if !reply.is_empty() {
                    Counters::add(&self.proxy.counters.told);
                }
                self.front.put(&reply);
                let block = match failed_block {
                    true => Block::Failed,
                    false => Block::None,
                };
                self.relocate(self.attrs, Some(node), until, block).await?;
            }
            Loss::End(last) => {
                self.front.put(&last);
                return self.close().await;
            }
        }
        Ok(())
    }

    /// The client has been given its last message.
    async fn close(&mut self) -> Result<()> {
        _ = tokio::time::timeout(LINGER, self.front.flush()).await;
        Err(gone(&io::ErrorKind::ConnectionAborted.into()))
    }

    /// The node has refused what the client knows of: goes to another one before anything new is begun.
    async fn leave(&mut self, primary: bool) -> Result<()> {
        let here = self.back.node;
        self.proxy.refused(here);
        let attrs = takes_refused(self.attrs, primary);
        let until = Instant::now() + self.proxy.options.patience;
        match self.relocate(attrs, Some(here), until, Block::None).await {
            Err(e) if e.code() == SqlState::CANNOT_CONNECT_NOW => {
                self.track.stays();
                Ok(())
            }
            r => r,
        }
    }

    /// What the session waits for may never come where it is: as if that node were lost.
    async fn pulled(&mut self) -> Result<()> {
        let at = *self.own.at.lock();
        if let Some((node, key)) = at {
            debug!(node = %self.proxy.node(node), "a statement is taken away");
            let at = self.proxy.node(node);
            tokio::spawn(async move { cancel(&at, key).await });
        }
        self.ending = Some(false);
        self.lost().await
    }

    /// The router has asked for a move: is there a better node now?
    async fn consider_moving(&mut self) -> Result<()> {
        let here = self.back.node;
        let (fits, target) = {
            let mut router = self.proxy.router.lock();
            let target = router.pick(self.attrs, Some(here));
            (router.fits(here, self.attrs), target)
        };
        // A session that has drawn numbers may ask for them: it moves only when it must.
        let Some(target) = target.filter(|t| *t != here && !(fits && self.track.draws())) else {
            if !fits {
                self.proxy.event(Event::Stayed(self.id));
            }
            return Ok(());
        };
        // When that fails it stays where it is, and is asked again.
        if let Err(e) = self.attach(target, self.attrs, Block::None).await {
            debug!(error = %e, "a move failed");
            self.proxy.event(Event::Stayed(self.id));
        }
        Ok(())
    }

    /// Goes on at another node, waiting for one within the time.
    async fn relocate(
        &mut self,
        attrs: Attrs,
        avoid: Option<NodeId>,
        until: Instant,
        block: Block<'_>,
    ) -> Result<()> {
        loop {
            // What the client was told does not wait for that.
            let told = self.front.flush();
            told.await.map_err(|e| gone(&e))?;
            let node = self.proxy.pick(attrs, avoid, until).await?;
            match self.attach(node, attrs, block).await {
                Ok(()) => return Ok(()),
                Err(e) if Instant::now() >= until => return Err(none(&e)),
                Err(e) => {
                    if e.code() == SqlState::CONNECTION_FAILURE {
                        self.proxy.event(Event::Down(node));
                    } else if !elsewhere(&e) && e.code() != SqlState::INSUFFICIENT_RESOURCES {
                        return Err(e);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Opens a node with the proxy's own role, gives it what the session has, and lets go of the old one.
    async fn attach(&mut self, node: NodeId, attrs: Attrs, block: Block<'_>) -> Result<()> {
        let mut at = self.proxy.node(node);
        at.database = self.hello.database.clone();
        let mut parameters: Vec<(&str, &str)> = vec![(SESSION_USER, &self.hello.user)];
        let own = self.hello.parameters.iter();
        parameters.extend(own.map(|(k, v)| (k.as_str(), v.as_str())));
        parameters.extend(TELL);
        let carry = self.track.carry();
        let begun = Mutex::new(None);
        let opened = async {
            let mut link = self.proxy.connect(&at, &parameters).await?;
            *begun.lock() = Some(link.key());
            let told = link.parameters.clone();
            give(&mut link, &carry, block).await?;
            Ok::<_, Error>((link, told))
        };
        // A node that is none for this session any more may keep it waiting for ever.
        let limit = self.proxy.options.patience;
        let opened = tokio::select! {
            r = tokio::time::timeout(limit, opened) => {
                r.unwrap_or_else(|_| Err(gone(&io::ErrorKind::TimedOut.into())))
            }
            () = self.proxy.unfit(node, attrs) => {
                let what = format!("{at} does not serve such sessions any more");
                Err(Error::new(SqlState::CANNOT_CONNECT_NOW, what))
            }
        };
        let begun = begun.into_inner();
        if opened.is_err()
            && let Some(key) = begun
        {
            // What waits there does not see that its client is gone.
            tokio::spawn(async move { cancel(&at, key).await });
        }
        let (link, told) = opened?;
        *self.own.at.lock() = begun.map(|key| (node, key));
        let (stream, input) = link.into_parts();
        let new = Back {
            end: End::new(stream, &input),
            node,
        };
        self.passes = false;
        let mut old = std::mem::replace(&mut self.back, new);
        old.end.put(&[b'X', 0, 0, 0, 4]);
        old.end.send_at_once();
        let shown = self.track.connected(&told);
        self.front.put(&shown);
        self.ending = None;
        Counters::add(&self.proxy.counters.moves);
        self.proxy.event(Event::Opened {
            session: self.id,
            node,
            attrs: self.attrs,
        });
        Ok(())
    }
}

/// The kind of node that takes what a node has refused: the primary, which runs everything. A session that wants a replica stays with those, unless it must
/// write.
fn takes_refused(attrs: Attrs, write: bool) -> Attrs {
    match attrs {
        Attrs::Standby if !write => Attrs::Standby,
        _ => Attrs::Primary,
    }
}

/// The transaction that a session goes on in at another node.
#[derive(Clone, Copy)]
enum Block<'a> {
    None,
    /// One that has failed.
    Failed,
    /// What these make of it; none: between transactions.
    Open(&'a [String]),
}

/// Gives a connection what a session has. A part that is refused is left out: using it is then an error there. A node that says it cannot
/// serve now gets no session.
async fn give(link: &mut Link, carry: &Carry, block: Block<'_>) -> Result<()> {
    let survives = |r: Result<()>| match r {
        Err(e) if elsewhere(&e) => Err(e),
        _ => Ok(()),
    };
    let quoted = |v: &str| v.replace('\'', "''");
    for (name, value) in &carry.settings {
        let sql = match name.as_str() {
            "session_authorization" => format!("SET SESSION AUTHORIZATION '{}'", quoted(value)),
            "role" if value == "none" => "SET ROLE NONE".to_owned(),
            "role" => format!("SET ROLE '{}'", quoted(value)),
            // Lists, whose parts a quoted value would make one, and names with dots.
            n if n.contains('.') || matches!(n, "search_path" | "temp_tablespaces") => {
                let (n, v) = (quoted(n), quoted(value));
                format!("SELECT set_config('{n}', '{v}', false)")
            }
            n => format!("SET {n} TO '{}'", quoted(value)),
        };
        survives(link.query(&sql).await.map(drop))?;
    }
    for sql in &carry.texts {
        survives(link.query(sql).await.map(drop))?;
    }
    for parse in &carry.parses {
        let mut m = parse.clone();
        m.extend_from_slice(&[b'S', 0, 0, 0, 4]);
        survives(link.exchange(&m).await)?;
    }
    match block {
        Block::None => {}
        Block::Failed => {
            survives(link.query("BEGIN").await.map(drop))?;
            let fails = "SELECT the_transaction_was_lost_with_its_node";
            survives(link.query(fails).await.map(drop))?;
        }
        Block::Open(all) => {
            for sql in all {
                link.query(sql).await?;
            }
        }
    }
    Ok(())
}
