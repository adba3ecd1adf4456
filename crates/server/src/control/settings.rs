//! What the members agree on about their cluster, changed while it works (`canon cluster set NAME=VALUE`).
//!
//! ```text
//! any member   canon_cluster_set(name, value) ──▶ checked against the catalogue ──▶ Command::Set { all settings, those that it changes }
//! ```
//! A command names the settings that it changes. Where these are others by now it changes nothing, and the member looks again. So of two that change two settings at the
//! same time neither is lost.
//!
//! | setting | is |
//! |---|---|
//! | `synchronous_replicas` | how many replicas a commit waits for; `default`: 1 as soon as there is a second copy |
//! | `failover.max_loss` | what a fail-over may lose where no replica has to have a commit; `default`: there is none then |
//! | `failover.degrade_after` | how long commits wait for a replica before the members agree to go on without it; `default`: [`::cluster::Catalogue::degrade_after`] |
//! | `failover.sites_may_lead` | `on`: copies of sites count as those of servers, and a site may be named |
//! | `maintenance` | `on`: no other primary is named by itself, and commits wait for replicas as long as it takes |
//!
//! Left out on purpose: `failover.lease`, which holds from the founding on.

use super::Seat;
use super::words::system;
use crate::config::{Said, max_loss};
use ::cluster::question::{Question, SETTINGS, SITES};
use ::cluster::{Catalogue, Command, Policies, Refused};
use base::{Error, Result, SqlState};
use futures::future::join_all;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

/// How long the members may take to agree: an election and a fail-over.
const AGREE: Duration = Duration::from_secs(10);
/// How long a member may take to say of which build it is.
const SAYS: Duration = Duration::from_secs(2);
/// Between two tries, and two looks.
const AGAIN: Duration = Duration::from_millis(20);
/// The most replicas that a commit may wait for, as in the configuration.
const MOST: usize = 16;
/// A pause of a replica is no reason to go on without it.
const LEAST_WAIT: Duration = Duration::from_millis(500);
const SITES_MAY_LEAD: &str = "failover.sites_may_lead";

fn time(ms: u64) -> String {
    match ms % 1000 {
        0 => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

/// What is set for the cluster, as it is written; nothing for what follows from the members.
pub(super) fn written(policies: &Policies) -> Vec<String> {
    let replicas = policies.synchronous_replicas;
    let settings = [
        replicas.map(|n| format!("synchronous_replicas={n}")),
        (policies.max_loss).map(|ms| format!("failover.max_loss={}", time(ms))),
        (policies.degrade_after).map(|ms| format!("failover.degrade_after={}", time(ms))),
        (policies.lease).map(|ms| format!("failover.lease={}", time(ms))),
        (policies.sites_may_lead).then(|| format!("{SITES_MAY_LEAD}=on")),
        policies.maintenance.then(|| "maintenance=on".to_owned()),
    ];
    settings.into_iter().flatten().collect()
}

fn switch(said: &Said<String>) -> Result<bool> {
    match said.text() {
        "on" => Ok(true),
        "off" | "" => Ok(false),
        _ => Err(said.bad("on or off")),
    }
}

/// The settings with this one as it is said.
fn changed(before: &Policies, name: &str, value: &str) -> Result<Policies> {
    let said = |key| Said {
        key,
        value: Some(value.trim().to_owned()).filter(|v| v != "default"),
    };
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut policies = before.clone();
    match name.trim() {
        "synchronous_replicas" => {
            let said = said("synchronous_replicas");
            let wrong = || said.bad("0 to 16, or default");
            let n = said
                .if_any()
                .map(|n| n.parse::<usize>().map_err(|_| wrong()));
            let n = n.transpose()?;
            if n.is_some_and(|n| n > MOST) {
                return Err(wrong());
            }
            policies.synchronous_replicas = n;
        }
        "failover.max_loss" => {
            policies.max_loss = max_loss(&said("failover.max_loss"))?.map(millis)
        }
        "failover.degrade_after" => {
            let said = said("failover.degrade_after");
            let time = said.if_any().map(|_| said.time()).transpose()?;
            if time.is_some_and(|t| t < LEAST_WAIT) {
                return Err(said.bad("at least 500ms"));
            }
            policies.degrade_after = time.map(millis);
        }
        SITES_MAY_LEAD => policies.sites_may_lead = switch(&said(SITES_MAY_LEAD))?,
        "maintenance" => policies.maintenance = switch(&said("maintenance"))?,
        "failover.lease" => {
            let what = "failover.lease holds from the founding of a cluster on";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what));
        }
        name => {
            let what = format!("unrecognized cluster setting \"{name}\"");
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, what).hint(
                "There are synchronous_replicas, failover.max_loss, failover.degrade_after, failover.sites_may_lead and maintenance.",
            ));
        }
    }
    Ok(policies)
}

/// An error where no commit could be acknowledged any more.
fn fits(catalogue: &Catalogue, policies: &Policies) -> Result<()> {
    let now = catalogue.policies();
    let mut after = catalogue.clone();
    // Whether it comes too late is for the members to say.
    _ = after.apply(&Command::Set {
        policies: policies.clone(),
        before: None,
    });
    let others = after.replicas();
    let fewer = others < catalogue.replicas();
    match policies.synchronous_replicas {
        Some(n) if n > others && (now.synchronous_replicas != Some(n) || fewer) => {
            let what = format!(
                "synchronous_replicas = {n}: every commit would wait, as there are {others} other copies that count"
            );
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what))
        }
        _ => Ok(()),
    }
}

/// What it means from now on.
fn means(catalogue: &Catalogue) -> String {
    let policies = catalogue.policies();
    let set = match written(policies) {
        all if all.is_empty() => "Nothing is set for the cluster.".to_owned(),
        all => format!("Set for the cluster: {}.", all.join(", ")),
    };
    if policies.maintenance {
        return format!(
            "{set}\nNo other primary is named by itself, and commits wait for replicas as long as it takes."
        );
    }
    let wanted = match catalogue.wanted() {
        0 => "no replica".to_owned(),
        1 => "1 replica".to_owned(),
        n => format!("{n} replicas"),
    };
    let degrades = match (catalogue.wanted(), catalogue.degrade_after()) {
        (1.., Some(ms)) => format!(", for {} at most", time(ms)),
        (1.., None) => ", as long as it takes".to_owned(),
        (0, _) => String::new(),
    };
    format!("{set}\nCommits wait for {wanted}{degrades}.")
}

impl Seat {
    /// An error where a member is of a build below this level, which would take the change in another way. From then on the members would count by different
    /// numbers. A member that does not answer counts by the level that it said last: when it comes back it takes what was agreed on meanwhile.
    pub(super) async fn all_know(&self, catalogue: &Catalogue, needed: u32) -> Result<()> {
        let me = self.me();
        let others = catalogue
            .members()
            .iter()
            .filter(|(id, _)| Some(**id) != me);
        let asked = others.map(|(_, m)| async move {
            let level = self.question::<u32>(&m.address, &Question::Level);
            let level = match tokio::time::timeout(SAYS, level).await {
                Ok(Ok(level)) => level,
                // A build that does not know the question says that.
                Ok(Err(e)) if e.code() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => 0,
                Ok(Err(_)) | Err(_) => m.level,
            };
            (level < needed).then(|| m.name.clone())
        });
        let lack: Vec<String> = join_all(asked).await.into_iter().flatten().collect();
        if lack.is_empty() {
            return Ok(());
        }
        let what = match needed {
            SITES => "sites as members",
            _ => "that settings change",
        };
        let what = format!("the build of {} does not know {what}", lack.join(", "));
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what).hint(
            "Start all members with this build first. One that is down counts by what it said last; canon leave --member takes it out.",
        ))
    }

    /// Changes this setting of the cluster. What it means, in words.
    pub(super) async fn set(self: Arc<Seat>, name: &str, value: &str) -> Result<String> {
        let until = Instant::now() + AGREE;
        let mut known = false;
        let not_now = |what| Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what);
        let mut agreed = false;
        loop {
            let founded = self.catalogue().filter(|c| c.phase().is_some());
            let (Some(catalogue), Some(member)) = (founded, self.member.get()) else {
                let what = "this server is no member of a cluster that runs itself";
                return Err(not_now(what).hint("Its configuration says what holds for it."));
            };
            let before = catalogue.policies().clone();
            let policies = changed(&before, name, value)?;
            // What is known here may be old: only a majority says that it is so.
            if policies == before && agreed {
                return Ok(means(&catalogue));
            }
            fits(&catalogue, &policies)?;
            if !std::mem::replace(&mut known, true) {
                let sites = policies.sites_may_lead != before.sites_may_lead;
                let needed = if sites { SITES } else { SETTINGS };
                self.all_know(&catalogue, needed).await?;
            }
            let command = Command::Set {
                policies,
                before: Some(before),
            };
            let why = match member.propose(command).await {
                Some(Ok(())) => {
                    agreed = true;
                    info!(
                        name,
                        value, "the members have agreed on a setting of the cluster"
                    );
                    "the members have agreed, and this one does not know it yet"
                }
                // They are others by now, as is known here soon; or a primary is being chosen.
                Some(Err(Refused::Leads)) => {
                    return Err(not_now("the primary is a site")
                        .hint("Make a server the primary first: canon promote --server OTHER."));
                }
                Some(Err(Refused::Late)) => "the members are about to agree on a primary",
                Some(Err(why)) => return Err(system(format!("{why:?}"))),
                None => "it is not known whether the members have agreed on that",
            };
            if Instant::now() > until {
                return Err(not_now(why).hint("canon status shows what is set. Ask again."));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(said: &[(&str, &str)]) -> Vec<String> {
        let mut policies = Policies::default();
        for (name, value) in said {
            policies = changed(&policies, name, value).expect("taken");
        }
        written(&policies)
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        let all = [
            ("synchronous_replicas", "2"),
            ("failover.max_loss", "5s"),
            ("failover.degrade_after", "1500ms"),
            ("failover.sites_may_lead", "on"),
            ("maintenance", "on"),
        ];
        let mut wanted: Vec<_> = all.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(after(&all), wanted);
        let without = [&all[..], &[("maintenance", "off")]].concat();
        wanted.pop();
        assert_eq!(after(&without), wanted);
        let defaults = all.map(|(name, _)| (name, "default"));
        assert_eq!(after(&[&all[..], &defaults].concat()), Vec::<String>::new());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, value) in [
            ("synchronous_replicas", "17"),
            ("synchronous_replicas", "-1"),
            ("synchronous_replicas", "many"),
            ("failover.max_loss", "1s"),
            ("failover.max_loss", "soon"),
            ("failover.degrade_after", "100ms"),
            ("failover.degrade_after", "0"),
            ("maintenance", "maybe"),
            ("failover.sites_may_lead", "1"),
            ("failover.lease", "600ms"),
            ("sites_may_lead", "on"),
            ("", ""),
        ] {
            let done = changed(&Policies::default(), name, value);
            assert!(done.is_err(), "{name}={value}: {done:?}");
        }
    }
}
