//! Consensus: openraft over this project's disk, carrying [`Command`]s, with the [`Catalogue`] as its state.
//!
//! [`Consensus`] is one member. Messages between members are bytes that [`Carry`] takes to another member and that [`Consensus::hear`] answers there, so the server
//! sends them over its own proven connections.
//!
//! Voters follow the catalogue: the consensus leader changes them in [`Consensus::fit`], from one to three in one step. The others learn.
//! When a member stands for election is decided in [`crate::elections`].
//!
//! **A leader that is taken out** takes its own vote away, and nothing else. From then on it learns, says that it leads nothing, and is silent, so the others
//! elect another one. That one takes it out of the learners. Were it to do that itself, openraft would take it for the leader for a while still, and a change of the
//! voters in that time would be that of a stranger, which openraft forbids by an assertion.
//!
//! **Terms** that no cluster comes to ([`crate::catalogue::HIGHEST_TERM`]) are refused where they come in: commands before they enter the log, messages before openraft sees them.
//!
//! Left out on purpose: what follows from the catalogue. Leases and fail-over are decided in [`crate::failover`].

mod campaign;
pub mod file;
mod message;
mod runtime;
mod store;
mod types;

pub use message::Message;

use campaign::{Campaign, Last, OUT_AT_ONCE, Others, is_taken_out};
use env::Env;
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{ChangeMembers, Config, EmptyNode, Raft, SnapshotPolicy};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

use crate::catalogue::{Catalogue, Command, Member, NodeId, Refused};
use crate::elections::Timing;
use crate::leases::Before;
use crate::tasks::{JoinHandle, spawn};
use message::Ballot;
use store::Applied;
use types::Types;

/// The name of its log in the directory.
pub const LOG: &str = file::NAME;

/// The answer of another member, or that there was none.
pub type Carried<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send + 'a>>;

/// The way to the other members.
pub trait Carry: Send + Sync + 'static {
    /// Takes the message to a member and brings back what [`Consensus::hear`] answered there.
    fn carry(&self, to: NodeId, message: Vec<u8>) -> Carried<'_>;
}

/// How long a member is left alone that could not be reached.
const BACKOFF: Duration = Duration::from_millis(100);

/// One member of the consensus. Clones share it.
#[derive(Clone)]
pub struct Consensus {
    me: NodeId,
    raft: Raft<Types>,
    applied: Applied,
    expected: Arc<Catalogue>,
    campaign: Arc<Campaign>,
    file: Arc<Mutex<file::LogFile>>,
    _task: Arc<Task>,
}

/// Ends with the last clone.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn other(e: impl std::fmt::Display) -> io::Error {
    io::Error::other(e.to_string())
}

impl Consensus {
    /// Opens what this directory holds, or begins as a member of nothing. Needs a tokio runtime with time, or a thread that has entered
    /// [`crate::tasks::Tasks`].
    pub async fn open(
        env: &Env,
        dir: &Path,
        me: NodeId,
        carry: Arc<dyn Carry>,
        timing: Timing,
    ) -> io::Result<Consensus> {
        let config = Config {
            cluster_name: "canon".into(),
            // Also how long an append may take. Heartbeats and elections are asked for by `campaign`.
            heartbeat_interval: timing.patience,
            enable_heartbeat: false,
            enable_elect: false,
            // How long a vote may take, and how long a voter is true to its leader.
            election_timeout_min: timing.patience + 1,
            election_timeout_max: timing.quiet,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(500),
            max_in_snapshot_log_to_keep: 100,
            ..Config::default()
        };
        let config = Arc::new(config.validate().map_err(other)?);
        let file = file::LogFile::open(env.disk.clone(), dir)?;
        let expected = Arc::new(file.content().expected());
        let (store, machine, applied) = store::open(file);
        let file = store.file();
        let campaign = Arc::new(Campaign::new(env, me, timing));
        let ways = Ways {
            carry: carry.clone(),
            campaign: campaign.clone(),
        };
        let raft = Raft::new(me, config, ways, store, machine);
        let raft = raft.await.map_err(other)?;
        let others = Arc::new(Voters {
            me,
            carry,
            file: file.clone(),
        });
        let task = spawn(campaign.clone().run(raft.clone(), others));
        Ok(Consensus {
            me,
            raft,
            applied,
            expected,
            campaign,
            file,
            _task: Arc::new(Task(task)),
        })
    }

    /// Makes a cluster of one, whose data stands in this term. An error if it is a member of one.
    pub async fn found(&self, member: Member, term: u64) -> io::Result<()> {
        // One that was ended between this and the first entry goes on from here.
        if !self.raft.is_initialized().await.map_err(other)? {
            let alone = BTreeMap::from([(self.me, EmptyNode {})]);
            self.raft.initialize(alone).await.map_err(other)?;
        }
        let leads = |m: &openraft::RaftMetrics<NodeId, EmptyNode>| m.state.is_leader();
        self.raft
            .wait(None)
            .metrics(leads, "a cluster of one elects itself")
            .await
            .map_err(other)?;
        let node = self.me;
        let found = Command::Found { node, member, term };
        self.propose(found)
            .await?
            .map_err(|r| io::Error::other(format!("{r:?}")))
    }

    /// The catalogue as far as it is applied here, and a way to wait for a change.
    pub fn catalogue(&self) -> watch::Receiver<Catalogue> {
        self.applied.catalogue.clone()
    }

    /// The same, with the index of the last entry in it. Each member has the same catalogue at an index.
    pub fn applied(&self) -> (u64, Catalogue) {
        self.applied.at_index()
    }

    /// What this member's disk held when it was opened, its newest entries included, which may not have been agreed on: a guess for what the catalogue
    /// will say.
    pub fn expected(&self) -> &Catalogue {
        &self.expected
    }

    /// Whether this member may stand for election from now on.
    pub fn may_stand(&self, may: bool) {
        self.campaign.may_stand(may);
    }

    /// What the election has shown of leases of earlier leaders. Of the term that [`Consensus::won`] has named.
    pub fn before(&self, term: u64) -> Before {
        let voters = self.voters();
        self.campaign.before(term, voters.len() < 2)
    }

    /// A lease is about to be granted here. Called before a majority is asked.
    pub fn grants(&self) {
        self.campaign.takes_part();
    }

    /// Why this member's part has ended, if it has: a write of its log that failed ends it.
    pub fn failed(&self) -> Option<String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.running_state.as_ref().err().map(|e| e.to_string())
    }

    /// The consensus leader, as far as this member knows. openraft goes on to name a member that the voters have taken out as the leader that it was: no other
    /// member sends it messages any more.
    pub fn leader(&self) -> Option<NodeId> {
        let leads = self.won().is_some();
        let metrics = self.raft.metrics();
        let leader = metrics.borrow().current_leader;
        leader.filter(|l| leads || *l != self.me)
    }

    /// The consensus term in which this member was elected, while it leads as far as it knows.
    pub fn won(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let leads = metrics.state.is_leader() && !is_taken_out(&metrics, self.me);
        leads.then_some(metrics.current_term)
    }

    /// The voters, as far as this member knows.
    pub fn voters(&self) -> BTreeSet<NodeId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.membership_config.membership().voter_ids().collect()
    }

    /// Whether a change of the voters is under way, or has broken off half-way. Until it ends a majority of the old ones and one of the new ones is
    /// needed. The names alone do not show that.
    pub fn is_changing_voters(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        membership.get_joint_config().len() > 1
    }

    /// Appends a command, at the leader. What the catalogue said to it; an error if it is not known whether it was appended, or if this is not the leader.
    pub async fn propose(&self, command: Command) -> io::Result<Result<(), Refused>> {
        if !command.is_possible() {
            return Ok(Err(Refused::NoSuchTerm));
        }
        self.leads_no_more()?;
        let written = self.raft.client_write(command).await.map_err(other)?;
        Ok(written.data)
    }

    /// An error at a leader that is taken out. What openraft would send for it would keep the others from electing another one.
    fn leads_no_more(&self) -> io::Result<()> {
        let metrics = self.raft.metrics();
        match is_taken_out(&metrics.borrow(), self.me) {
            true => Err(other("this member has no vote any more")),
            false => Ok(()),
        }
    }

    /// A majority has confirmed this leader in a round that began after the call. A lease may be granted after that.
    pub async fn confirm(&self) -> io::Result<()> {
        self.leads_no_more()?;
        self.raft.ensure_linearizable().await.map_err(other)?;
        Ok(())
    }

    /// At the leader: brings voters and learners to what the catalogue says. Called after each change of it; does nothing where all stands. `reached`: members
    /// that answer now. Voters of whom no majority answers would end the consensus, as nothing can be agreed on without them from then on, not even
    /// other voters. So they wait.
    pub async fn fit(&self, reached: &BTreeSet<NodeId>) -> io::Result<()> {
        let metrics = self.raft.metrics().borrow().clone();
        if self.won().is_none() {
            return Ok(());
        }
        let membership = metrics.membership_config.membership().clone();
        let known: BTreeSet<NodeId> = membership.nodes().map(|(id, _)| *id).collect();
        let now: BTreeSet<NodeId> = membership.voter_ids().collect();
        let (_, catalogue) = self.applied();
        let members: BTreeSet<NodeId> = catalogue.members().keys().copied().collect();
        if members.is_empty() {
            return Ok(());
        }
        for new in members.difference(&known) {
            let blocking = false;
            let added = self.raft.add_learner(*new, EmptyNode {}, blocking).await;
            added.map_err(other)?;
        }
        let voters = catalogue.voters(&now);
        if voters != now || self.is_changing_voters() {
            if voters.intersection(reached).count() <= voters.len() / 2 {
                return Ok(());
            }
            let changed = self.raft.change_membership(voters, true).await;
            changed.map_err(other)?;
        }
        // Without a vote this member leads no more. The next leader takes it out of the learners.
        if !catalogue.voters(&now).contains(&self.me) && !env::fault::planted(OUT_AT_ONCE) {
            return Ok(());
        }
        let left: BTreeSet<NodeId> = known.difference(&members).copied().collect();
        if !left.is_empty() {
            let remove = ChangeMembers::RemoveNodes(left);
            let changed = self.raft.change_membership(remove, true).await;
            changed.map_err(other)?;
        }
        Ok(())
    }

    /// Answers a message of another member.
    pub async fn hear(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        let answer = match Message::decode(message)? {
            Message::Append(m) => {
                self.campaign.takes_part();
                let leader = m.vote.leader_id.node_id;
                let answer = self.raft.append_entries(m).await;
                if !matches!(answer, Err(_) | Ok(AppendEntriesResponse::HigherVote(_))) {
                    self.campaign.heard(leader);
                }
                serde_json::to_vec(&answer)
            }
            Message::Vote(m) => serde_json::to_vec(&self.vote(m).await.answer),
            Message::Ballot(m) => serde_json::to_vec(&self.vote(m).await),
            Message::Snapshot(m) => {
                let leader = m.vote.leader_id.node_id;
                let answer = self.raft.install_snapshot(m).await;
                if matches!(&answer, Ok(answer) if answer.vote.leader_id.node_id == leader) {
                    self.campaign.heard(leader);
                }
                serde_json::to_vec(&answer)
            }
            Message::Stand { candidate, last } => {
                let (own, leads) = (last_of(&self.file), self.won().is_some());
                let yes = self.campaign.would_vote(candidate, last, own, leads);
                serde_json::to_vec(&yes)
            }
        };
        answer.map_err(other)
    }

    async fn vote(&self, request: VoteRequest<NodeId>) -> Ballot {
        let answer = self.raft.vote(request).await;
        if matches!(&answer, Ok(vote) if vote.vote_granted) {
            self.campaign.another(true);
        }
        let age = self.campaign.age();
        Ballot { answer, age }
    }

    /// Ends the member's tasks.
    pub async fn stop(&self) -> io::Result<()> {
        self.raft.shutdown().await.map_err(other)
    }
}

fn last_of(file: &Mutex<file::LogFile>) -> Last {
    let file = file.lock();
    let content = file.content();
    let last = content.entries.values().next_back().map(|e| e.log_id);
    last.or(content.purged)
}

/// The other voters, asked whether they would vote for this member.
struct Voters {
    me: NodeId,
    carry: Arc<dyn Carry>,
    file: Arc<Mutex<file::LogFile>>,
}

impl Others for Voters {
    async fn would_vote(&self, voter: NodeId, last: Last) -> bool {
        let candidate = self.me;
        let question = Message::Stand { candidate, last };
        let answer = self.carry.carry(voter, question.encode()).await;
        answer.is_ok_and(|a| serde_json::from_slice(&a).unwrap_or(false))
    }

    fn last(&self) -> Last {
        last_of(&self.file)
    }
}

/// Makes a [`Way`] to each member.
struct Ways {
    carry: Arc<dyn Carry>,
    campaign: Arc<Campaign>,
}

/// The way to one member.
struct Way {
    to: NodeId,
    carry: Arc<dyn Carry>,
    campaign: Arc<Campaign>,
}

impl RaftNetworkFactory<Types> for Ways {
    type Network = Way;

    async fn new_client(&mut self, target: NodeId, _node: &EmptyNode) -> Way {
        Way {
            to: target,
            carry: self.carry.clone(),
            campaign: self.campaign.clone(),
        }
    }
}

type Failed<E> = RPCError<NodeId, EmptyNode, RaftError<NodeId, E>>;

impl Way {
    /// The answer as it is.
    async fn send<A, E>(&self, message: &Message) -> Result<A, Failed<E>>
    where
        A: DeserializeOwned,
        E: std::error::Error,
    {
        let answer = self.carry.carry(self.to, message.encode()).await;
        let answer = answer.map_err(|e| Unreachable::new(&e))?;
        Ok(serde_json::from_slice(&answer).map_err(|e| NetworkError::new(&e))?)
    }

    async fn ask<T, E>(&self, message: Message) -> Result<T, Failed<E>>
    where
        T: DeserializeOwned,
        E: std::error::Error + DeserializeOwned,
    {
        let answer: Result<T, RaftError<NodeId, E>> = self.send(&message).await?;
        answer.map_err(|e| RPCError::RemoteError(openraft::error::RemoteError::new(self.to, e)))
    }
}

impl RaftNetwork<Types> for Way {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, Failed<openraft::error::Infallible>> {
        self.ask(Message::Append(rpc)).await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<InstallSnapshotResponse<NodeId>, Failed<InstallSnapshotError>> {
        self.ask(Message::Snapshot(rpc)).await
    }

    /// What the voter knows of leases is noted before the vote counts. A voter of a build before this one does not know a ballot: it says nothing of leases, and may
    /// have taken part just now.
    async fn vote(
        &mut self,
        rpc: VoteRequest<NodeId>,
        _option: RPCOption,
    ) -> Result<VoteResponse<NodeId>, Failed<openraft::error::Infallible>> {
        let term = rpc.vote.leader_id.term;
        let ballot: Result<Ballot, Failed<openraft::error::Infallible>> =
            self.send(&Message::Ballot(rpc.clone())).await;
        let (vote, age) = match ballot {
            Ok(Ballot { answer, age }) => {
                let remote = |e| openraft::error::RemoteError::new(self.to, e);
                (answer.map_err(|e| RPCError::RemoteError(remote(e)))?, age)
            }
            Err(_) => (self.ask(Message::Vote(rpc)).await?, 0),
        };
        if vote.vote_granted {
            self.campaign.has_vote(term, age);
        }
        Ok(vote)
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}
