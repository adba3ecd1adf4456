//! What makes this node one of its cluster: the cluster's secret, and what the node says of itself (`replica::proof`).
//!
//! ```text
//! DIR/CANON_SECRET    64 hexadecimal digits, mode 0600
//! DIR/CANON_VERSION   the cluster, of a node that has a database
//! ```
//! A new primary makes the secret from random bytes. Any other node is given a copy of that file by its operator (`cluster.secret_file`), and
//! keeps a copy in its own directory from its first start on. A file that is named wins over the one in the directory, and replaces it. A
//! primary's directory of an older build gets a secret at its next start. The secret is never sent.
//!
//! **A node is of one cluster from its start on**, also while its database is opened: two clusters may have one secret, as a restored one and the first. A node without a database
//! goes with any, until it has one. A witness never has one, so it notes the first cluster that it meets ([`Membership::notes`]).
//!
//! Left out on purpose: certificates, and two secrets at a time while one replaces the other.

use crate::config::Config;
use base::{Error, Result, SqlState};
use env::Env;
use node::copying::cluster_in;
use parking_lot::Mutex;
use protocol::Conninfo;
pub use protocol::startup::{NODE, NODE_MECHANISM as MECHANISM};
use replica::proof::{Answerer, Asker, BYTES, Claim, Denied, Nonce, Purpose, Secret};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::info;

/// The file in the data directory.
pub const FILE: &str = "CANON_SECRET";
/// The start-up parameter that says what a connection between nodes is for.
pub const REPLICATION: &str = "replication";

/// What the parameter `replication` stands for.
pub fn purpose(value: &str) -> Option<Purpose> {
    match value {
        "canon" => Some(Purpose::Replica),
        "forward" => Some(Purpose::Sessions),
        "terms" => Some(Purpose::Terms),
        "control" => Some(Purpose::Control),
        _ => None,
    }
}

/// See the head of the file.
pub struct Membership {
    name: String,
    secret: Secret,
    env: Env,
    /// 0: no history yet.
    cluster: Mutex<u128>,
    /// Where the first cluster is noted that a node without a database meets.
    noted: Option<PathBuf>,
    /// The newest term that this node knows to have begun.
    known: AtomicU64,
    /// Those that sign certificates of nodes.
    authorities: Option<PathBuf>,
    allow_plain_network: bool,
}

impl PartialEq for Membership {
    fn eq(&self, other: &Membership) -> bool {
        self.name == other.name && self.secret == other.secret
    }
}

impl Eq for Membership {}

fn bad(what: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// The secret in this file; none: there is no such file.
fn read(path: &Path) -> Result<Option<Secret>> {
    let Some(text) = service::secret::read(path)? else {
        return Ok(None);
    };
    let secret = Secret::parse(&text);
    secret.ok_or_else(|| service::secret::none(path)).map(Some)
}

/// Writes a file whole, durably, for this user only.
fn write(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let write = || -> std::io::Result<()> {
        _ = std::fs::remove_file(&temporary);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        let directory = path.parent().expect("a file is in a directory");
        File::open(directory)?.sync_all()
    };
    write().map_err(|e| {
        let what = format!("could not write {}: {e}", path.display());
        Error::new(SqlState::IO_ERROR, what)
    })
}

impl Membership {
    /// Of the node that this configures; a primary that has no secret yet gets one. 22023 for any other node that has none.
    pub fn of(config: &Config, env: &Env) -> Result<Membership> {
        let own = read(&config.data.join(FILE))?;
        let named = match &config.cluster_secret_file {
            None => None,
            Some(path) => {
                let missing = || bad(format!("cluster secret file {}: not found", path.display()));
                Some(read(path)?.ok_or_else(missing)?)
            }
        };
        let secret = match (named.or(own), &config.replica_of) {
            (Some(secret), _) => secret,
            (None, None) => {
                let mut bytes = [0; BYTES];
                env.random.fill(&mut bytes);
                Secret::new(bytes)
            }
            (None, Some(primary)) => {
                return Err(bad(
                    "this node has no cluster secret, and only nodes that have it are replicas"
                        .to_owned(),
                )
                .hint(format!(
                    "Copy {FILE} from the data directory of {primary}, and name the copy with --cluster-secret-file at the first start."
                )));
            }
        };
        Ok(Membership {
            name: config.node_name.clone(),
            secret,
            env: env.clone(),
            cluster: Mutex::new(cluster_in(env, &config.data)?.unwrap_or(0)),
            noted: None,
            known: AtomicU64::new(0),
            authorities: config.cluster_ca.clone(),
            allow_plain_network: config.entrance.allow_plain_network,
        })
    }

    /// The same of a node that never has a database. The cluster that is noted in this file, or else the first that it meets, is its own.
    pub fn notes(mut self, file: PathBuf) -> Result<Membership> {
        let read = match std::fs::read_to_string(&file) {
            Ok(text) => u128::from_str_radix(text.trim(), 16).map_err(std::io::Error::other),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(e),
        };
        let read = read.map_err(|e| {
            let what = format!("could not read {}: {e}", file.display());
            Error::new(SqlState::IO_ERROR, what)
        })?;
        (self.cluster, self.noted) = (Mutex::new(read), Some(file));
        Ok(self)
    }

    /// The other end has proven that it is of this cluster, and is one that this node looks for, or that looks for it. 28000 where that is another one
    /// than this node's. Returns when it is durable.
    pub fn meets(&self, cluster: u128) -> Result<()> {
        let Some(file) = self.noted.as_ref().filter(|_| cluster != 0) else {
            return Ok(());
        };
        // Two may come at the same time.
        let mut own = self.cluster.lock();
        match *own {
            0 => {
                let text = format!("{cluster:032x}\n");
                tokio::task::block_in_place(|| write(file, &text))?;
                *own = cluster;
                Ok(())
            }
            own if own == cluster => Ok(()),
            _ => Err(denied(Denied::OtherCluster)),
        }
    }

    /// Another node's address, with what this node asks of TLS.
    pub fn secured(&self, server: Conninfo) -> Conninfo {
        server.secured(self.authorities.as_deref(), self.allow_plain_network)
    }

    /// Whether other machines may connect to this node without TLS.
    pub fn allows_plain_network(&self) -> bool {
        self.allow_plain_network
    }

    /// Writes the secret into the directory, unless it is there. The directory is locked by this process.
    pub fn keep(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        if read(&path)?.as_ref() == Some(&self.secret) {
            return Ok(());
        }
        write(&path, &self.secret.text())?;
        info!(path = %path.display(), "the cluster's secret is kept");
        Ok(())
    }

    /// This node has the history of this cluster, and knows that this term has begun.
    pub fn belongs(&self, cluster: u128, term: u64) {
        *self.cluster.lock() = cluster;
        self.hears(term);
    }

    /// This term has begun, here or elsewhere. (Not one that may yet be taken back.)
    pub fn hears(&self, term: u64) {
        self.known.fetch_max(term, Ordering::SeqCst);
    }

    /// The newest term that is known.
    pub fn known(&self) -> u64 {
        self.known.load(Ordering::SeqCst)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn claim(&self) -> Claim {
        Claim {
            node: self.name.clone(),
            cluster: *self.cluster.lock(),
            term: self.known(),
        }
    }

    /// The cluster's secret, for a single word (`ask`).
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    pub fn nonce(&self) -> Nonce {
        let mut nonce = [0; BYTES];
        self.env.random.fill(&mut nonce);
        nonce
    }

    /// For a connection that this node makes.
    pub fn asker(&self, purpose: Purpose) -> Asker {
        Asker::new(self.secret.clone(), purpose, &self.claim(), &self.nonce())
    }

    /// For a connection that another node has made.
    pub fn answerer(
        &self,
        purpose: Purpose,
        first: &[u8],
    ) -> std::result::Result<(Answerer, Vec<u8>), Denied> {
        let (claim, nonce) = (self.claim(), self.nonce());
        Answerer::asked(self.secret.clone(), purpose, &claim, &nonce, first)
    }
}

/// 28000: what the other end has not proven.
pub fn denied(why: Denied) -> Error {
    let what = match why {
        Denied::WrongSecret => format!(
            "{why}: copy {FILE} from the primary's data directory to the replica, and name the copy there with --cluster-secret-file"
        ),
        why => why.to_string(),
    };
    Error::new(SqlState::INVALID_AUTHORIZATION, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn config(data: &Path, of: Option<&str>, named: Option<&Path>) -> Config {
        let flags = Overrides {
            data: Some(data.to_owned()),
            replica_of: of.map(str::to_owned),
            cluster_secret_file: named.map(Path::to_owned),
            ..Overrides::default()
        };
        Config::load(&flags).expect("a configuration")
    }

    #[test]
    fn a_primary_makes_one_and_a_replica_is_given_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [a, b] = ["a", "b"].map(|n| scratch.path().join(n));
        for dir in [&a, &b] {
            std::fs::create_dir(dir).expect("a directory");
        }
        let env = Env::os();
        let first = Membership::of(&config(&a, None, None), &env).expect("a new one");
        first.keep(&a).expect("kept");
        let again = Membership::of(&config(&a, None, None), &env).expect("it is there");
        assert!(first == again);
        let mode = std::fs::metadata(a.join(FILE)).expect("it is there");
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);

        let of = Some("10.0.0.1:5432");
        let Err(e) = Membership::of(&config(&b, of, None), &env) else {
            panic!("a replica makes none up");
        };
        assert!(
            e.fields()
                .hint
                .contains("CANON_SECRET from the data directory of 10.0.0.1:5432")
        );
        let named = a.join(FILE);
        let given = Membership::of(&config(&b, of, Some(&named)), &env).expect("given");
        given.keep(&b).expect("kept");
        let kept = Membership::of(&config(&b, of, None), &env).expect("kept");
        assert!(kept.secret == first.secret);
    }

    #[test]
    fn a_node_without_a_database_keeps_to_the_first_cluster_that_it_meets() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (env, file) = (Env::os(), scratch.path().join("CLUSTER"));
        let opened = || {
            let member = Membership::of(&config(scratch.path(), None, None), &env);
            member.expect("a secret").notes(file.clone())
        };
        let w = opened().expect("nothing is noted");
        w.meets(0).expect("one without a history says nothing");
        assert!(!file.exists());
        w.meets(7).expect("the first");
        for w in [w, opened().expect("noted")] {
            assert_eq!(w.claim().cluster, 7);
            w.meets(7).expect("its own");
            w.meets(0).expect("one without a history");
            let e = w.meets(8).expect_err("another one");
            assert_eq!(e.code(), SqlState::INVALID_AUTHORIZATION);
        }
        std::fs::write(&file, "rubbish").expect("written");
        assert!(opened().is_err());
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("secret");
        let data = scratch.path().join("data");
        let env = Env::os();
        let of = || Membership::of(&config(&data, None, Some(&file)), &env).err();
        assert!(of().is_some_and(|e| e.fields().message.contains("not found")));
        std::fs::write(&file, "0".repeat(64)).expect("written");
        for mode in [0o644, 0o640, 0o604, 0o620] {
            let set = std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode));
            set.expect("ours");
            let e = of().expect("refused");
            assert!(e.fields().message.contains("read by others"), "{e}");
        }
        let set = std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600));
        set.expect("ours");
        assert!(of().is_none());
        std::fs::write(&file, "secret").expect("written");
        assert!(of().is_some_and(|e| e.fields().message.contains("64 hexadecimal")));
    }
}
