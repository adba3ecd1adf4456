//! Whether a node is one: by the cluster's secret, as nodes prove it to each other.
//!
//! ```text
//! with the secret      each connection of the proxy's own role: CANON-NODE-1 behind the role's login (`replica::proof`)
//!                      a client's login: `canon.relayed`, what the client's end is bound to
//! without the secret   the node has to know what the role's password proves, or to show a certificate of the cluster
//! ```
//! Without the secret the proxy believes what answers at an address on its own machine, and anywhere for a role without a password.
//!
//! Left out on purpose: a second proof for a client's login. The node was asked at its address a moment before (`watch`).

use super::options::Options;
use base::{Error, Result, SqlState};
use protocol::conninfo::SslMode;
use protocol::link::Mechanism;
use protocol::startup::{NODE, NODE_MECHANISM};
use protocol::{Conninfo, Link};
use replica::proof::{Asker, BYTES, Claim, Denied, Purpose, Secret};

/// What the proxy calls itself.
const NAME: &str = "canon proxy";

/// The cluster's secret, where the proxy is given one. 22023 for a file that is not there, has none, or can be read by others.
pub fn secret(options: &Options) -> Result<Option<Secret>> {
    let Some(path) = &options.cluster_secret_file else {
        return Ok(None);
    };
    let missing = || {
        let shown = path.display();
        let what = format!("cluster secret file {shown}: not found");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
    };
    let text = service::secret::read(path)?.ok_or_else(missing)?;
    let secret = Secret::parse(&text);
    secret.ok_or_else(|| service::secret::none(path)).map(Some)
}

/// Whether a node has to know the password of the proxy's role, as nothing else proves that it is one.
pub fn by_password(at: &Conninfo, secret: Option<&Secret>) -> bool {
    let certified = at.tls.mode >= SslMode::VerifyCa;
    secret.is_none() && !certified && !at.is_here() && at.password().is_some()
}

/// Connects and logs in. With the secret the other end has to prove that it is a node.
pub async fn connect(
    at: &Conninfo,
    parameters: &[(&str, &str)],
    secret: Option<&Secret>,
    env: &env::Env,
) -> Result<Link> {
    let Some(secret) = secret else {
        return Link::connect(at, parameters).await;
    };
    let mut nonce = [0; BYTES];
    env.random.fill(&mut nonce);
    let claim = Claim {
        node: NAME.to_owned(),
        cluster: 0,
        term: 0,
    };
    let mut proof = Proof {
        at,
        asker: Asker::new(secret.clone(), Purpose::Proxy, &claim, &nonce),
        proven: false,
    };
    let parameters: Vec<_> = parameters.iter().copied().chain([(NODE, NAME)]).collect();
    Link::connect_with(at, &parameters, Some(&mut proof)).await
}

/// The asking end's part of a login.
struct Proof<'a> {
    at: &'a Conninfo,
    asker: Asker,
    proven: bool,
}

impl Proof<'_> {
    /// 28000.
    fn denied(&self, why: Denied) -> Error {
        let what = format!("{}: {why}", self.at);
        Error::new(SqlState::INVALID_AUTHORIZATION, what)
    }
}

impl Mechanism for Proof<'_> {
    fn name(&self) -> &'static str {
        NODE_MECHANISM
    }

    fn introduction(&mut self) -> Vec<u8> {
        self.asker.introduction().to_vec()
    }

    fn challenged(&mut self, challenge: &[u8]) -> Result<Vec<u8>> {
        let proof = self.asker.challenged(challenge);
        proof.map_err(|why| self.denied(why))
    }

    fn answered(&mut self, proof: &[u8]) -> Result<()> {
        let claim = self.asker.answered(proof);
        claim.map_err(|why| self.denied(why))?;
        self.proven = true;
        Ok(())
    }

    fn admitted(&self) -> Result<()> {
        match self.proven {
            true => Ok(()),
            false => Err(self.denied(Denied::WrongSecret)),
        }
    }
}
