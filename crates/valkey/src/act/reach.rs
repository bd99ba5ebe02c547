//! Servers within reach of a step: each asked again who and what it is just before it is told anything.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use redis::Cmd;
use usher_engine::{ErrorClass, ObjectKey, Uid};
use usher_operator::error::Failure;

use crate::observe::ask::{ALWAYS_ANSWERED, QUESTIONS};
use crate::observe::client::{Clients, PORT, Password, Target, Trouble, Wire, command};
use crate::observe::parse;
use crate::observe::reply::Reply;
use crate::observe::seen::{Flags, Peer, RoleSaid, Says};
use crate::plan::step::Server;
use crate::words::{NodeId, Ordinal};

/// What a step needs to reach the servers of one cluster.
pub struct Reach<'a> {
    /// The wires.
    pub clients: &'a Clients,
    /// The cluster's name.
    pub key: ObjectKey,
    /// Its uid.
    pub cluster: Uid,
    /// The password in force.
    pub password: Option<Password>,
    /// Where each pod answers.
    pub pods: BTreeMap<Uid, IpAddr>,
    /// Whether we still lead: asked before everything that changes something.
    pub leads: &'a (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for Reach<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Reach<'_> {
    /// Asks a server, and makes sure that it is who the plan took it for.
    pub async fn hold(&self, server: &Server) -> Result<Held<'_>, Failure> {
        let pod = self.pod(server.ordinal);
        let address = *self
            .pods
            .get(&server.pod)
            .ok_or_else(|| Failure::Gone { object: pod.clone() })?;
        let (wire, says) = self.ask(&server.pod, address, &pod).await?;
        let held = Held {
            reach: self,
            pod,
            address,
            wire,
            says,
        };
        if held.says.id == server.id {
            Ok(held)
        } else {
            Err(held.moved(&format!(
                "it is {} now and not {}",
                held.says.id.short(),
                server.id.short()
            )))
        }
    }

    /// The server of a pod, whoever it is; `None` where it does not answer.
    pub async fn whoever(&self, pod: &Uid, called: &str) -> Option<Held<'_>> {
        let address = *self.pods.get(pod)?;
        let (wire, says) = self.ask(pod, address, called).await.ok()?;
        Some(Held {
            reach: self,
            pod: called.to_owned(),
            address,
            wire,
            says,
        })
    }

    async fn ask(&self, uid: &Uid, address: IpAddr, pod: &str) -> Result<(Wire, Says), Failure> {
        let questions: Vec<Cmd> = QUESTIONS.iter().map(|words| command(words)).collect();
        let target = Target {
            pod: uid.clone(),
            address,
        };
        let transient = |why: String| Failure::Kind {
            class: ErrorClass::Transient,
            message: format!("{pod}: {why}"),
        };
        let asked = self
            .clients
            .question(&self.cluster, &target, self.password.as_ref(), &questions)
            .await;
        let (wire, replies) = asked.map_err(|trouble| transient(trouble.to_string()))?;
        let refusal = replies.iter().take(ALWAYS_ANSWERED).find_map(Reply::refusal);
        if let Some(words) = refusal {
            return Err(transient(Trouble::of_refusal(words).to_string()));
        }
        let says = parse::says(&replies).map_err(|error| transient(error.to_string()))?;
        Ok((wire, says))
    }

    fn pod(&self, ordinal: Ordinal) -> String {
        format!("pod {}-{ordinal}", self.key)
    }
}

/// A server that has just said who it is.
pub struct Held<'r> {
    reach: &'r Reach<'r>,
    pod: String,
    address: IpAddr,
    wire: Wire,
    says: Says,
}

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("pod", &self.pod).finish_non_exhaustive()
    }
}

impl Held<'_> {
    /// What it said.
    pub fn says(&self) -> &Says {
        &self.says
    }

    /// Who it is.
    pub fn id(&self) -> &NodeId {
        &self.says.id
    }

    /// Where it answers.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Its entry of itself. [`parse::says`] has made sure that there is one.
    pub fn myself(&self) -> Peer {
        self.says.myself().cloned().unwrap_or_default()
    }

    /// Whether it calls itself a primary.
    pub fn is_primary(&self) -> bool {
        matches!(self.says.role, RoleSaid::Primary { .. })
    }

    /// What it says of another, where it knows it; handshakes are not known yet.
    pub fn knows(&self, id: &NodeId) -> Option<&Peer> {
        self.says.view.get(id).filter(|peer| !peer.flags.handshake)
    }

    /// The world is not what the plan took it for.
    pub fn moved(&self, why: &str) -> Failure {
        Failure::Conflict {
            object: format!("{} ({why})", self.pod),
        }
    }

    /// Holds only if this is so.
    pub fn require(&self, holds: bool, why: &str) -> Result<(), Failure> {
        if holds { Ok(()) } else { Err(self.moved(why)) }
    }

    /// Asks without changing anything.
    pub async fn ask(&self, doing: &'static str, command: &Cmd) -> Result<Reply, Failure> {
        self.wire
            .ask(command)
            .await
            .map_err(|trouble| self.failure(doing, trouble))
    }

    /// Tells it to do something.
    pub async fn tell(&self, doing: &'static str, command: &Cmd) -> Result<Reply, Failure> {
        self.try_tell(command)
            .await?
            .map_err(|trouble| self.failure(doing, trouble))
    }

    /// The same, for those whom some refusals do not bother.
    pub async fn try_tell(&self, command: &Cmd) -> Result<Result<Reply, Trouble>, Failure> {
        self.fence()?;
        Ok(self.wire.ask(command).await)
    }

    /// The same, for commands that may take longer than most.
    pub async fn try_tell_within(&self, command: &Cmd, limit: Duration) -> Result<Result<Reply, Trouble>, Failure> {
        self.fence()?;
        Ok(self.wire.ask_within(command, limit).await)
    }

    /// Tells it several things that belong together.
    pub async fn tell_all(&self, doing: &'static str, commands: &[Cmd]) -> Result<(), Failure> {
        self.fence()?;
        let replies = self.wire.ask_all(commands).await;
        let replies = replies.map_err(|trouble| self.failure(doing, trouble))?;
        match replies.iter().find_map(Reply::refusal) {
            Some(words) => Err(self.failure(doing, Trouble::of_refusal(words))),
            None => Ok(()),
        }
    }

    fn fence(&self) -> Result<(), Failure> {
        if (self.reach.leads)() {
            Ok(())
        } else {
            Err(Failure::NotLeader {
                object: self.pod.clone(),
            })
        }
    }

    /// What became of a command.
    pub fn failure(&self, doing: &'static str, trouble: Trouble) -> Failure {
        let object = self.pod.clone();
        match trouble {
            Trouble::Silent(problem) => Failure::Unknown {
                verb: doing,
                object,
                problem,
            },
            other => Failure::Kind {
                class: ErrorClass::Transient,
                message: format!("{doing} {object}: {other}"),
            },
        }
    }

    /// Makes it know another server.
    pub async fn meet(&self, address: IpAddr) -> Result<(), Failure> {
        let meet = command("CLUSTER MEET").arg(address.to_string()).arg(PORT).to_owned();
        self.tell("introduce a member to", &meet).await.map(drop)
    }
}

/// Whether a peer counts as reached and well.
pub fn is_well(peer: &Peer) -> bool {
    let Flags {
        failed,
        suspected,
        handshake,
        no_address,
        ..
    } = peer.flags;
    peer.connected && !failed && !suspected && !handshake && !no_address
}
