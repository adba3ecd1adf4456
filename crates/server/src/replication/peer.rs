//! The node that this one follows or tells: its address, and the login at which both prove that they are of one cluster.
//!
//! A login between nodes is one of the protocol's own ([`protocol::Link`]) with the mechanism `CANON-NODE-1` (`replica::proof`). A login
//! for any other purpose is a role's, with SCRAM.
//!
//! Left out on purpose: the answering end (`connections::startup`).

use super::Membership;
use super::membership::{self, MECHANISM, denied};
use base::{Error, Result, SqlState};
use protocol::link::Mechanism;
use protocol::{Conninfo, Link};
use replica::proof::{Asker, Claim};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// A node's address, the role that logs in there, and what this node proves of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Primary {
    server: Conninfo,
    /// What this node proves to it, and has it prove.
    pub member: Option<Arc<Membership>>,
    /// Where the primary is now, where that can change while this node runs. It wins over host and port.
    target: Option<Target>,
}

/// A primary that can be another one later. Clones share it.
#[derive(Clone)]
pub struct Target(Arc<Aim>);

struct Aim {
    at: watch::Sender<(String, u16)>,
    /// This node's number in a cluster that runs itself, which it says where it follows; 0: it has none.
    number: AtomicU64,
}

impl Target {
    /// The primary is at this address from now on. False: it was already.
    pub fn set(&self, host: String, port: u16) -> bool {
        let new = (host, port);
        let changes = |at: &mut (String, u16)| std::mem::replace(at, new.clone()) != new;
        self.0.at.send_if_modified(changes)
    }

    /// The next connection that follows says this number of this node.
    pub fn says_number(&self, number: u64) {
        self.0.number.store(number, Ordering::SeqCst);
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Target {}

/// Where a primary was when this was made.
#[derive(Clone)]
pub struct Found(Option<watch::Receiver<(String, u16)>>);

impl Found {
    /// Whether the primary is at another address than when this was made.
    pub fn has_moved(&self) -> bool {
        let at = self.0.as_ref();
        at.is_some_and(|at| at.has_changed().unwrap_or(false))
    }

    /// Ready when the primary is at another address than when this was made.
    pub async fn moved(&mut self) {
        if let Some(at) = &mut self.0
            && at.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

impl Primary {
    /// Reads a connection string; `Err` says what is wrong.
    pub fn parse(text: &str) -> std::result::Result<Primary, String> {
        let server = Conninfo::parse(text)?;
        Ok(Primary {
            server,
            member: None,
            target: None,
        })
    }

    /// One whose address can change from now on, and what changes it.
    pub fn movable(mut self) -> (Primary, Target) {
        let target = Target(Arc::new(Aim {
            at: watch::channel((self.host.clone(), self.port)).0,
            number: AtomicU64::new(0),
        }));
        self.target = Some(target.clone());
        (self, target)
    }

    /// Host and port, now.
    pub fn address(&self) -> (String, u16) {
        match &self.target {
            Some(t) => t.0.at.borrow().clone(),
            None => (self.host.clone(), self.port),
        }
    }

    /// Where it is now, to be told when that changes.
    pub fn found(&self) -> Found {
        Found(self.target.as_ref().map(|t| t.0.at.subscribe()))
    }

    /// This node's number in a cluster that runs itself, which it says where it follows.
    pub fn number(&self) -> Option<u64> {
        let number = self.target.as_ref()?.0.number.load(Ordering::SeqCst);
        (number > 0).then_some(number)
    }

    /// The server that it is now.
    pub fn server(&self) -> Conninfo {
        let mut server = self.server.clone();
        (server.host, server.port) = self.address();
        match &self.member {
            Some(member) => member.secured(server),
            None => server,
        }
    }

    /// Asked by a node of its cluster.
    pub fn as_member(mut self, member: Arc<Membership>) -> Primary {
        self.member = Some(member);
        self
    }

    /// Connects and logs in. `parameters` go beside user and database into the start-up message. One that names a purpose between nodes
    /// has both ends prove that they are of the cluster. A primary that moves meanwhile is connected to where it is then: the old address may
    /// be that of a machine that answers nothing.
    pub async fn connect(&self, parameters: &[(&str, &str)]) -> Result<Link> {
        self.connect_proven(parameters).await.map(|(link, _)| link)
    }

    /// The same, and what the other end has proven of itself.
    pub async fn connect_proven(
        &self,
        parameters: &[(&str, &str)],
    ) -> Result<(Link, Option<Claim>)> {
        loop {
            let mut found = self.found();
            tokio::select! {
                made = self.connect_here(parameters) => return made,
                () = found.moved() => {}
            }
        }
    }

    async fn connect_here(&self, parameters: &[(&str, &str)]) -> Result<(Link, Option<Claim>)> {
        let purpose = parameters.iter().find(|p| p.0 == membership::REPLICATION);
        let purpose = purpose.and_then(|p| membership::purpose(p.1));
        let (Some(member), Some(purpose)) = (&self.member, purpose) else {
            return Ok((Link::connect(&self.server(), parameters).await?, None));
        };
        let mut proof = Proof {
            server: self,
            asker: member.asker(purpose),
            peer: None,
        };
        let node = (membership::NODE, member.name());
        let parameters: Vec<_> = parameters.iter().copied().chain([node]).collect();
        let link = Link::connect_with(&self.server(), &parameters, Some(&mut proof)).await?;
        Ok((link, proof.peer))
    }
}

impl Deref for Primary {
    type Target = Conninfo;

    fn deref(&self) -> &Conninfo {
        &self.server
    }
}

impl DerefMut for Primary {
    fn deref_mut(&mut self) -> &mut Conninfo {
        &mut self.server
    }
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server().fmt(f)
    }
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.server(), f)
    }
}

/// The asking end's part of a login.
struct Proof<'a> {
    server: &'a Primary,
    asker: Asker,
    peer: Option<Claim>,
}

impl Mechanism for Proof<'_> {
    fn name(&self) -> &'static str {
        MECHANISM
    }

    fn introduction(&mut self) -> Vec<u8> {
        self.asker.introduction().to_vec()
    }

    fn challenged(&mut self, challenge: &[u8]) -> Result<Vec<u8>> {
        let proof = self.asker.challenged(challenge).map_err(denied)?;
        Ok(proof.to_vec())
    }

    fn answered(&mut self, proof: &[u8]) -> Result<()> {
        let claim = self.asker.answered(proof);
        self.peer = Some(claim.map_err(|_| unproven(self.server))?);
        Ok(())
    }

    fn admitted(&self) -> Result<()> {
        let proven = self.peer.as_ref().map(drop);
        proven.ok_or_else(|| unproven(self.server))
    }
}

/// 28000: the other end may be anything.
fn unproven(primary: &Primary) -> Error {
    Error::new(
        SqlState::INVALID_AUTHORIZATION,
        format!(
            "{primary} does not prove that it has this cluster's secret: it is of another cluster, or of a build that knows of none"
        ),
    )
    .hint(format!(
        "Copy {} from the data directory of {primary}, and name the copy with --cluster-secret-file.",
        membership::FILE
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// The machine that was the primary answers nothing any more.
    #[tokio::test]
    async fn a_primary_that_moves_is_connected_to_where_it_is() {
        let bind = || TcpListener::bind("127.0.0.1:0");
        let (old, new) = (bind().await.expect("a port"), bind().await.expect("a port"));
        let port = |l: &TcpListener| l.local_addr().expect("an address").port();
        let text = format!("host=127.0.0.1 port={} sslmode=disable", port(&old));
        let (primary, target) = Primary::parse(&text).expect("an address").movable();
        let made = tokio::spawn(async move { primary.connect(&[]).await.map(drop) });
        let (_silent, _) = old.accept().await.expect("it is dialed");
        assert!(target.set("127.0.0.1".into(), port(&new)));
        let (mut s, _) = new.accept().await.expect("the new one is dialed");
        let len = s.read_u32().await.expect("a length") as usize;
        s.read_exact(&mut vec![0; len - 4]).await.expect("a start");
        let ready = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
        s.write_all(ready).await.expect("written");
        made.await.expect("a task").expect("logged in");
    }
}
