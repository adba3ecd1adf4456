//! Before a replica has a database: a task that carries what `node::copying` says.
//!
//! Left out on purpose: when a copy is needed, begun again or given up, which the node decides.

use super::commands;
use super::copy_both::CopyBoth;
use super::{Primary, Restart};
use crate::config::Config;
use base::Result;
use env::Env;
pub(super) use node::copying::disk;
use node::copying::{Copying, Do, Event, Note, Place};
use node::restart::Patience;
use protocol::Line;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::block_in_place;
use tokio::time::sleep;
use tracing::{info, warn};

/// How often the copy is told that time has passed.
const TIME: Duration = Duration::from_millis(100);
/// How often its progress is said.
const PROGRESS: Duration = Duration::from_secs(1);

fn place(config: &Config) -> Place {
    Place {
        env: Env::os(),
        path: config.data.clone(),
        segment_bytes: config.segment_bytes,
    }
}

/// Whether there is no database here.
pub fn is_wanting(config: &Config) -> Result<bool> {
    place(config).is_wanting()
}

/// See [`Place::led_term`].
pub fn led_term(config: &Config) -> Result<Option<u64>> {
    place(config).led_term()
}

/// Makes the directory one that this replica can follow with: does what the last life asked for, then copies the primary's database
/// if there is none.
pub async fn prepare(
    config: &Config,
    primary: &Primary,
    restart: Option<Restart>,
) -> Result<Prepared> {
    let name = config.node_name.clone();
    let copying =
        block_in_place(|| Copying::new(place(config), name, Patience::default(), restart))?;
    let mut task = Task {
        primary,
        name: &config.node_name,
        copying,
        copied: false,
        began: Instant::now(),
        said: Instant::now(),
    };
    task.run().await
}

/// What a replica follows with.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// Copies in a row that did not come.
    pub failed: u32,
    /// Whether a copy of the primary's database has taken the place of what was here.
    pub copied: bool,
}

struct Task<'a> {
    primary: &'a Primary,
    name: &'a str,
    copying: Copying,
    copied: bool,
    began: Instant,
    /// When the progress was last said.
    said: Instant,
}

impl Task<'_> {
    async fn run(&mut self) -> Result<Prepared> {
        let mut time = tokio::time::interval(TIME);
        time.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut link: Option<CopyBoth<Line<TcpStream>>> = None;
        let mut out = Vec::new();
        self.copying.begin(&mut out);
        loop {
            for d in std::mem::take(&mut out) {
                match d {
                    Do::Send(m) => {
                        if let Some(link) = &mut link {
                            link.send(&m);
                        }
                    }
                    Do::Run { after, job } => {
                        if !after.is_zero() {
                            sleep(after).await;
                        }
                        self.copying
                            .handle(Event::Done(block_in_place(job)), &mut out);
                    }
                    Do::Connect { after } => {
                        drop(link.take());
                        sleep(after).await;
                        let event = match self.connect().await {
                            Ok(made) => {
                                link = Some(made);
                                Event::Connected
                            }
                            Err(e) => Event::Lost(e),
                        };
                        self.copying.handle(event, &mut out);
                    }
                    Do::Note(note) => self.note(note),
                    Do::Ready { failed } => {
                        let copied = self.copied;
                        return Ok(Prepared { failed, copied });
                    }
                    Do::Fail(e) => return Err(e),
                }
            }
            if !out.is_empty() {
                continue;
            }
            let Some(link) = &mut link else {
                unreachable!("it connects, or has ended");
            };
            let event = tokio::select! {
                m = link.next() => m.map_or_else(Event::Lost, Event::Message),
                _ = time.tick() => Event::Time,
            };
            self.copying.handle(event, &mut out);
        }
    }

    async fn connect(&self) -> Result<CopyBoth<Line<TcpStream>>> {
        let parameters = [("replication", "canon"), ("application_name", self.name)];
        let link = self.primary.connect(&parameters).await?;
        CopyBoth::begin(link, commands::LOG).await
    }

    fn note(&mut self, note: Note) {
        let primary = self.primary;
        match note {
            Note::SetAside { what, copy } => warn!(
                commits = what.commits,
                rows = what.rows,
                bytes = what.bytes,
                last = %what.last,
                report = %what.report.display(),
                copy,
                "set aside what the cluster's history does not have"
            ),
            Note::Copying { bytes, start } => {
                self.began = Instant::now();
                info!(%primary, bytes, from = %start, "copying the primary's database");
            }
            Note::Progress { done, all } => {
                if self.said.elapsed() >= PROGRESS {
                    self.said = Instant::now();
                    let percent = done * 100 / all.max(1);
                    info!(done_bytes = done, all_bytes = all, percent, "copying");
                }
            }
            Note::Copied { rows } => {
                self.copied = true;
                let milliseconds = self.began.elapsed().as_millis() as u64;
                info!(rows, milliseconds, "copied");
            }
            Note::NotYet(why) => warn!("no copy of {primary} yet: {why}"),
            Note::GivenUp(why) => {
                warn!("no copy of {primary} came ({why}): going on with what is here");
            }
        }
    }
}
