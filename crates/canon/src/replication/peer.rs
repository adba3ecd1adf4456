//! The node that this one follows or tells: its address, and the login at which both prove that they are of one cluster.
//!
//! A login between nodes is one of the protocol's own ([`protocol::Link`]) with the mechanism `CANON-NODE-1` (`replica::proof`). A login
//! for any other purpose is a role's, with SCRAM.
//!
//! Left out on purpose: the answering end (`gate::startup`).

use super::Membership;
use super::membership::{self, MECHANISM, denied};
use base::{Error, Result, SqlState};
use protocol::link::Mechanism;
use protocol::{Conninfo, Link};
use replica::proof::{Asker, Claim};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A node's address, the role that logs in there, and what this node proves of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Primary {
    server: Conninfo,
    /// What this node proves to it, and has it prove.
    pub member: Option<Arc<Membership>>,
}

impl Primary {
    /// Reads a connection string; `Err` says what is wrong.
    pub fn parse(text: &str) -> std::result::Result<Primary, String> {
        let server = Conninfo::parse(text)?;
        let member = None;
        Ok(Primary { server, member })
    }

    /// Asked by a node of its cluster.
    pub fn as_member(mut self, member: Arc<Membership>) -> Primary {
        self.member = Some(member);
        self
    }

    /// Connects and logs in. `parameters` go beside user and database into the start-up message. One that names a purpose between nodes
    /// has both ends prove that they are of the cluster.
    pub async fn connect(&self, parameters: &[(&str, &str)]) -> Result<Link> {
        self.connect_proven(parameters).await.map(|(link, _)| link)
    }

    /// The same, and what the other end has proven of itself.
    pub async fn connect_proven(
        &self,
        parameters: &[(&str, &str)],
    ) -> Result<(Link, Option<Claim>)> {
        let purpose = parameters.iter().find(|p| p.0 == membership::REPLICATION);
        let purpose = purpose.and_then(|p| membership::purpose(p.1));
        let (Some(member), Some(purpose)) = (&self.member, purpose) else {
            return Ok((Link::connect(self, parameters).await?, None));
        };
        let mut proof = Proof {
            server: self,
            asker: member.asker(purpose),
            peer: None,
        };
        let node = (membership::NODE, member.name());
        let parameters: Vec<_> = parameters.iter().copied().chain([node]).collect();
        let link = Link::connect_with(self, &parameters, Some(&mut proof)).await?;
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
        self.server.fmt(f)
    }
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.server, f)
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
