//! A primary that comes back asks the replicas that it has had how far they are, before it serves anybody.
//!
//! ```text
//! primary   node open, held ── connections listens ──┬─▶ each known replica: ASK, cluster id ──▶ its Hello: terms, last position
//!                                             └◀── replicas that connect by themselves: the same Hello
//!           one that says it is ahead ──▶ SHOW, a position ──▶ what its log holds there (`replica::ship::evidence`)
//!           2 seconds at most for each ── start_check::ahead ── none: serves       one: refuses, with both positions and the ways out
//! ```
//! The question comes instead of a start-up message and needs no role: it is answered to who names the cluster, and says what every replica
//! says of itself. It has a nonce, and the answer comes with a proof by the cluster's secret (`replica::proof`): one without could keep a primary
//! from serving, and is none. The second question needs the secret, as a node reads its log for it, and is answered with headers, which hold no rows. While the node is held, clients wait as at any start
//! (57P03 after 5 s), replicas are let in, and their reads are not answered. An answer that knows a newer term deposes this primary, as a
//! Hello does.
//!
//! Left out on purpose: a proof that the question is a node's; the answer tells a name, terms and a position.

use super::Primary;
use super::copy_both::{broken, lost};
use super::membership::{Membership, denied};
use super::send::Senders;
use base::{Error, Position, Result};
use futures::stream::{FuturesUnordered, StreamExt};
use node::Node;
use node::start_check::{self, Answer};
use replica::proof::{BYTES, Denied};
use replica::ship::{Message, Ours, Stands, VERSION, stands};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::{info, warn};
use wal::{Around, Known};

/// The code of the question, where a start-up message has its version: no version of PostgreSQL's protocol, nor one of its requests.
pub const ASK: u32 = 0x0CA0_0001;
/// The code of the question what a log holds around a position.
pub const SHOW: u32 = 0x0CA0_0002;

/// How long replicas have for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one that says it is ahead may take to show it: it reads up to two segments.
const TO_SHOW: Duration = Duration::from_secs(30);
/// How often it is looked who has come by itself.
const LOOK: Duration = Duration::from_millis(20);
/// Longest answer: a history of 4,000 terms.
const LONGEST: u32 = 1 << 16;

/// What this node says to who asks with this body; nothing to a stranger.
pub fn answer(node: &Node, member: &Membership, name: &str, body: &[u8]) -> Option<Vec<u8>> {
    let (cluster, nonce) = body.split_first_chunk()?;
    if nonce.len() != BYTES {
        return None;
    }
    let cluster = u128::from_be_bytes(*cluster);
    (cluster == node.cluster()).then(|| {
        let hello = Message::Hello {
            version: u16::from(VERSION),
            cluster,
            node: name.to_owned(),
            terms: node.terms(),
            last: node.log_end(),
            ring: 0,
        };
        vouched(member, nonce, &hello)
    })
}

fn vouched(member: &Membership, nonce: &[u8], said: &Message) -> Vec<u8> {
    let mut bytes = said.to_bytes();
    let proof = member.secret().vouch(nonce, &bytes);
    bytes.extend_from_slice(&proof);
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

/// The body of the second question, which is vouched for: cluster and position.
fn show_body(cluster: u128, after: Position) -> [u8; 24] {
    let mut body = [0; 24];
    body[..16].copy_from_slice(&cluster.to_be_bytes());
    body[16..].copy_from_slice(&after.as_u64().to_be_bytes());
    body
}

/// What this node shows a node that asks with this body; nothing to a stranger. Waits up to a second for its own disk.
pub fn shown(node: &Node, member: &Membership, body: &[u8]) -> Option<Vec<u8>> {
    let (said, rest) = body.split_first_chunk::<24>()?;
    let (nonce, proof) = rest.split_at_checked(BYTES)?;
    let after = Position::from_u64(u64::from_be_bytes(*said.last_chunk()?));
    let asked = *said == show_body(node.cluster(), after);
    if !asked || !member.secret().is_vouched(nonce, said, proof) {
        return None;
    }
    let mut around = Around::default();
    for _ in 0..50 {
        around = node.dir().around(after).ok()?;
        if around.next.is_some() || around.checkpoint.is_some() {
            break;
        }
        std::thread::sleep(LOOK);
    }
    let said = Message::Shown(Box::new(around));
    Some(vouched(member, nonce, &said))
}

async fn ask(address: &str, member: &Membership, cluster: u128) -> Result<Message> {
    let nonce = member.nonce();
    let mut question = (24 + BYTES as u32).to_be_bytes().to_vec();
    question.extend_from_slice(&ASK.to_be_bytes());
    question.extend_from_slice(&cluster.to_be_bytes());
    question.extend_from_slice(&nonce);
    vouched_answer(address, member, &nonce, &question).await
}

async fn ask_to_show(
    address: &str,
    member: &Membership,
    cluster: u128,
    after: Position,
) -> Result<Around> {
    let (nonce, body) = (member.nonce(), show_body(cluster, after));
    let mut question = (8 + 24 + 2 * BYTES as u32).to_be_bytes().to_vec();
    question.extend_from_slice(&SHOW.to_be_bytes());
    question.extend_from_slice(&body);
    question.extend_from_slice(&nonce);
    question.extend_from_slice(&member.secret().vouch(&nonce, &body));
    match vouched_answer(address, member, &nonce, &question).await? {
        Message::Shown(around) => Ok(*around),
        _ => Err(broken("an answer to another question")),
    }
}

async fn vouched_answer(
    address: &str,
    member: &Membership,
    nonce: &[u8],
    question: &[u8],
) -> Result<Message> {
    let parsed = Primary::parse(address).map_err(|why| broken(&why))?;
    let server = member.secured(parsed.server());
    let mut stream = protocol::dial::dial(&server).await?;
    stream.write_all(question).await.map_err(|e| lost(&e))?;
    let length = stream.read_u32().await.map_err(|e| lost(&e))?;
    if length > LONGEST {
        return Err(broken("an answer that is too long"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await.map_err(|e| lost(&e))?;
    let said = bytes.len().checked_sub(BYTES);
    let (said, proof) = bytes.split_at(said.ok_or_else(|| broken("an answer that is too short"))?);
    if !member.secret().is_vouched(nonce, said, proof) {
        return Err(denied(Denied::WrongSecret));
    }
    Message::decode(said).map_err(broken)
}

/// One replica's answer; none when it came by itself, or does not answer.
async fn hear(senders: &Senders, known: &Known, cluster: u128, ours: Ours<'_>) -> Option<Answer> {
    let asked = async {
        match &known.address {
            Some(address) => ask(address, &senders.membership, cluster).await,
            // It is known by name only, and may come by itself.
            None => std::future::pending().await,
        }
    };
    let came = async {
        while !senders.has_greeted(&known.name) {
            tokio::time::sleep(LOOK).await;
        }
    };
    let answer = tokio::select! {
        a = tokio::time::timeout(PATIENCE, asked) => a,
        () = came => return None,
    };
    match answer {
        Ok(Ok(Message::Hello {
            cluster: of,
            terms,
            last,
            ..
        })) if of == cluster => {
            let mut shown = None;
            if let (Stands::Ahead { ours: end, .. }, Some(at)) =
                (stands(ours, &terms, last), &known.address)
            {
                // It has proven to be a node of the cluster. A slow disk or a broken connection is no lie, so it is asked again.
                let until = tokio::time::Instant::now() + TO_SHOW;
                while shown.is_none() && tokio::time::Instant::now() < until {
                    let asked = ask_to_show(at, &senders.membership, cluster, end);
                    match tokio::time::timeout_at(until, asked).await {
                        Ok(Ok(around)) => shown = Some(around),
                        _ => tokio::time::sleep(10 * LOOK).await,
                    }
                }
            }
            Some(Answer {
                name: known.name.clone(),
                address: known.address.clone(),
                terms,
                last,
                shown,
            })
        }
        Ok(Ok(_)) => None,
        Ok(Err(e)) => {
            info!(replica = %known.name, "not asked how far it is: {}", e.fields().message);
            None
        }
        Err(_) => {
            info!(replica = %known.name, "did not say within {PATIENCE:?} how far it is");
            None
        }
    }
}

/// Asks all known replicas, and lets the node go when none is ahead. An error: one is, and this node must not serve.
pub async fn before_serving(senders: &Senders, own_name: &str) -> Result<()> {
    let node = senders.node();
    let dir = node.dir();
    let known = dir.known_replicas().map_err(Error::from)?;
    let cluster = node.cluster();
    let others = known.iter().filter(|k| k.name != own_name);
    let (terms, lives) = (node.terms(), dir.lives().map_err(Error::from)?);
    let ours = Ours {
        terms: &terms,
        lives: &lives,
        last: node.recovered_end(),
    };
    let mut asking: FuturesUnordered<_> = others.map(|k| hear(senders, k, cluster, ours)).collect();
    let mut answers = Vec::new();
    loop {
        tokio::select! {
            e = senders.lost() => return Err(e),
            a = asking.next() => match a {
                Some(answer) => answers.extend(answer),
                None => break,
            }
        }
    }
    let here = |at| dir.around(at).map_err(Error::from);
    let (ahead, doubted) = start_check::ahead(ours, cluster, here, &answers)?;
    for d in &doubted {
        senders.doubt(&d.replica, d.ours, d.theirs, d.why);
    }
    if let Some(ahead) = ahead {
        let e = senders.lose(&ahead.replica, ahead.address, ahead.ours, ahead.theirs);
        warn!("{}", e.fields().message);
        return Err(e);
    }
    if let Some(term) = start_check::newer_term(ours, &answers) {
        info!(term, "a replica follows a newer term than this primary's");
        senders.depose(term);
    } else if !answers.is_empty() {
        let names: Vec<&str> = answers.iter().map(|a| &*a.name).collect();
        info!(
            "no replica is ahead of this primary: asked {}",
            names.join(", ")
        );
    }
    // One that came by itself may be ahead. What it shows is waited for; a connection that is silent ends.
    while senders.is_proving() && senders.has_lost().is_none() {
        tokio::time::sleep(LOOK).await;
    }
    match senders.has_lost() {
        Some(e) => Err(e),
        None => {
            node.hold(false);
            Ok(())
        }
    }
}
