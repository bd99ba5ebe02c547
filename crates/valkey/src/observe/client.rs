//! The wires to servers: one kept per pod uid, each command within its time.
//!
//! Nothing is tried again here but a wire that turns out to be cut when it is first used: what a command did before its
//! answer was lost, only the next look can tell. A password is shown to the server and to nobody else: it has no `Display`,
//! its `Debug` is three stars, and errors are combed for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline};
use redis::{RedisConnectionInfo, RedisError};
use usher_engine::Uid;

use super::reply::{Reply, refusal};

/// Where servers answer clients.
pub const PORT: u16 = 6379;

/// A password, for servers only.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<str>);

impl Password {
    /// From the Secret.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// For a command to a server, never for anything that people read.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    fn comb(&self, text: String) -> String {
        if self.0.is_empty() {
            text
        } else {
            text.replace(&*self.0, "***")
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The server lives and does not accept the password, or wants one. Nothing may be concluded from it.
    #[error(
        "it refuses the password ({0}); compare the Secret of spec.auth with the password that the server was started with"
    )]
    Refused(String),
    /// It is reading its data.
    #[error("it is loading its data")]
    Loading,
    /// No answer: it may or may not have done what it was asked.
    #[error("{0}")]
    Silent(String),
    /// It says no.
    #[error("it answers {0:?}")]
    Said(String),
}

impl Trouble {
    /// What an error reply means.
    pub fn of_refusal(words: &str) -> Self {
        match words.split(' ').next() {
            Some("LOADING") => Self::Loading,
            Some("NOAUTH" | "WRONGPASS") => Self::Refused(words.to_owned()),
            _ => Self::Said(words.to_owned()),
        }
    }

    /// Whether the server says no with these words in it.
    pub fn says(&self, words: &str) -> bool {
        matches!(self, Self::Said(said) if said.to_lowercase().contains(&words.to_lowercase()))
    }

    fn of_error(error: &RedisError, limit: Duration) -> Self {
        if error.is_timeout() {
            return Self::Silent(format!("no answer within {} ms", limit.as_millis()));
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::Refused(words(error)),
            ErrorKind::Server(_) | ErrorKind::Extension => {
                Self::of_refusal(&refusal(error.code().unwrap_or("ERR"), error.detail()))
            }
            _ => Self::Silent(words(error)),
        }
    }
}

fn words(error: &RedisError) -> String {
    match error.detail() {
        Some(detail) if error.code().is_some() => refusal(error.code().unwrap_or_default(), Some(detail)),
        _ => error.to_string(),
    }
}

/// A command of several words, as people write it; arguments are added behind.
pub fn command(words: &str) -> Cmd {
    let mut command = Cmd::new();
    for word in words.split(' ') {
        command.arg(word);
    }
    command
}

/// An open wire to one server.
#[derive(Clone)]
pub struct Wire {
    connection: MultiplexedConnection,
    password: Option<Password>,
    limit: Duration,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Wire {
    /// One command, one answer; an error reply is [`Trouble`].
    pub async fn ask(&self, command: &Cmd) -> Result<Reply, Trouble> {
        self.ask_within(command, self.limit).await
    }

    /// The same, for commands that may take longer.
    pub async fn ask_within(&self, command: &Cmd, limit: Duration) -> Result<Reply, Trouble> {
        let mut connection = self.connection.clone();
        connection.set_response_timeout(limit);
        let answer = connection.send_packed_command(command).await;
        let reply = answer.map(Reply::from).map_err(|error| self.trouble(&error, limit))?;
        match reply.refusal() {
            Some(words) => Err(self.combed(Trouble::of_refusal(words))),
            None => Ok(reply),
        }
    }

    /// All at once, in one write; each has its answer, error replies included.
    pub async fn ask_all(&self, commands: &[Cmd]) -> Result<Vec<Reply>, Trouble> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(&pipeline, 0, commands.len()).await;
        let answers = answers.map_err(|error| self.trouble(&error, self.limit))?;
        Ok(answers.into_iter().map(Reply::from).collect())
    }

    fn trouble(&self, error: &RedisError, limit: Duration) -> Trouble {
        self.combed(Trouble::of_error(error, limit))
    }

    fn combed(&self, trouble: Trouble) -> Trouble {
        comb(trouble, self.password.as_ref())
    }
}

fn comb(trouble: Trouble, password: Option<&Password>) -> Trouble {
    let Some(password) = password else { return trouble };
    match trouble {
        Trouble::Refused(text) => Trouble::Refused(password.comb(text)),
        Trouble::Silent(text) => Trouble::Silent(password.comb(text)),
        Trouble::Said(text) => Trouble::Said(password.comb(text)),
        Trouble::Loading => Trouble::Loading,
    }
}

/// Whom to reach: one incarnation of a pod, and where it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The pod.
    pub pod: Uid,
    /// Its address.
    pub address: IpAddr,
}

struct Kept {
    /// Whose pod it is: the cluster's uid.
    cluster: Uid,
    address: IpAddr,
    wire: Wire,
}

/// All wires of this process.
pub struct Clients {
    connect: Duration,
    limit: Duration,
    kept: Mutex<BTreeMap<Uid, Kept>>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Default for Clients {
    /// The spec's times (2.3).
    fn default() -> Self {
        Self::new(Duration::from_secs(2), Duration::from_secs(2))
    }
}

impl Clients {
    /// With these times for connecting and for one command.
    pub fn new(connect: Duration, limit: Duration) -> Self {
        Self {
            connect,
            limit,
            kept: Mutex::default(),
        }
    }

    /// Asks, over the kept wire or a new one. A kept wire that is cut is replaced once: nothing was asked over it yet, or
    /// the questions change nothing. So: for questions only.
    pub async fn question(
        &self,
        cluster: &Uid,
        target: &Target,
        password: Option<&Password>,
        questions: &[Cmd],
    ) -> Result<(Wire, Vec<Reply>), Trouble> {
        if let Some(wire) = self.kept(target, password) {
            match wire.ask_all(questions).await {
                Ok(replies) => return Ok((wire, replies)),
                Err(Trouble::Silent(_)) => self.drop_wire(&target.pod),
                Err(other) => return Err(other),
            }
        }
        let wire = self.open(target, password).await?;
        let asked = wire.ask_all(questions).await;
        if asked.is_ok() {
            let kept = Kept {
                cluster: cluster.clone(),
                address: target.address,
                wire: wire.clone(),
            };
            self.all().insert(target.pod.clone(), kept);
        }
        Ok((wire, asked?))
    }

    /// Lets go of wires to pods of this cluster that are not among these any more.
    pub fn keep_only(&self, cluster: &Uid, pods: &BTreeSet<Uid>) {
        self.all()
            .retain(|pod, kept| kept.cluster != *cluster || pods.contains(pod));
    }

    /// Lets go of one wire, after an answer that did not come: the next question opens a new one.
    pub fn drop_wire(&self, pod: &Uid) {
        self.all().remove(pod);
    }

    /// How many wires are kept.
    pub fn count(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<Uid, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self, target: &Target, password: Option<&Password>) -> Option<Wire> {
        let all = self.all();
        let kept = all.get(&target.pod)?;
        let fits = kept.address == target.address && kept.wire.password.as_ref() == password;
        fits.then(|| kept.wire.clone())
    }

    async fn open(&self, target: &Target, password: Option<&Password>) -> Result<Wire, Trouble> {
        let failed = |error: &RedisError| comb(Trouble::of_error(error, self.connect), password);
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(password) = password {
            login = login.set_password(password.reveal());
        }
        let place = ConnectionAddr::Tcp(target.address.to_string(), PORT);
        let info = place.into_connection_info().map_err(|error| failed(&error))?;
        let client = Client::open(info.set_redis_settings(login)).map_err(|error| failed(&error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect))
            .set_response_timeout(Some(self.limit));
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = opened.map_err(|error| match failed(&error) {
            Trouble::Silent(why) => {
                let place = SocketAddr::new(target.address, PORT);
                Trouble::Silent(format!("cannot connect to {place}: {why}"))
            }
            other => other,
        })?;
        Ok(Wire {
            connection,
            password: password.cloned(),
            limit: self.limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let password = Password::new("hunter2");
        assert_eq!(format!("{password:?}"), "***");
        let trouble = comb(Trouble::Said("ERR with args 'hunter2'".into()), Some(&password));
        assert_eq!(trouble.to_string(), "it answers \"ERR with args '***'\"");
        let empty = Password::new("");
        assert_eq!(
            comb(Trouble::Said("ERR x".into()), Some(&empty)),
            Trouble::Said("ERR x".into())
        );
    }

    #[test]
    fn refusals_are_told_from_silence_and_from_loading() {
        let of = Trouble::of_refusal;
        assert_eq!(of("LOADING Valkey is loading the dataset in memory"), Trouble::Loading);
        assert!(matches!(of("NOAUTH Authentication required."), Trouble::Refused(_)));
        assert!(matches!(
            of("WRONGPASS invalid username-password pair"),
            Trouble::Refused(_)
        ));
        assert!(of("ERR Unknown node f").says("unknown NODE"));
    }

    #[tokio::test]
    async fn nobody_there_is_silence_with_the_address() {
        let clients = Clients::default();
        let target = Target {
            pod: "a".into(),
            address: IpAddr::from([127, 255, 1, 9]),
        };
        let asked = clients.question(&"c".into(), &target, None, &[command("PING")]).await;
        let Err(Trouble::Silent(why)) = asked else {
            panic!("{asked:?}")
        };
        assert!(why.starts_with("cannot connect to 127.255.1.9:6379: "), "{why}");
        assert_eq!(clients.count(), 0);
    }
}
