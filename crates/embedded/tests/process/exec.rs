//! 11.6: commands in real containers, through the API.

/// The test of the API's side has it by hand, and asks more of it than we do.
#[allow(dead_code)]
#[path = "../pod_doors/socket.rs"]
mod socket;

use serde_json::{Value, json};
use usher_embedded::{ListenOptions, Listening};

use crate::world::sh;
use socket::Socket;

/// Where the socket connects to.
struct World {
    listening: Listening,
}

const PROTOCOL: &str = "v5.channel.k8s.io";

/// All that came by each channel, and the status in the last one.
async fn finish(socket: &mut Socket) -> (String, String, Value) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match socket.message().await {
            (1, bytes) => out.extend(bytes),
            (2, bytes) => err.extend(bytes),
            (3, bytes) => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                return (text(out), text(err), serde_json::from_slice(&bytes).unwrap());
            }
            (channel, bytes) => panic!("channel {channel}: {bytes:?}"),
        }
    }
}

/// For what is asked of pod `p` of a world.
pub struct Shell(World);

impl Shell {
    pub async fn of(world: &crate::world::World) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listening = world.cluster.listen(ListenOptions::default()).await.unwrap();
        Self(World { listening })
    }

    async fn begin(&self, script: &str, more: &str) -> Socket {
        let script: String = script.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let query = format!("command=sh&command=-c&command={script}&stdout=true{more}");
        Socket::exec(&self.0, PROTOCOL, &query).await
    }

    /// What a script says; or how it was refused.
    pub async fn run(&self, script: &str) -> String {
        let mut socket = self.begin(script, "").await;
        if !socket.head.starts_with("http/1.1 101") {
            return socket.head;
        }
        match finish(&mut socket).await {
            (said, _, status) if said.is_empty() => status.to_string(),
            (said, _, _) => said,
        }
    }

    /// Waits until a script says this: a node that was just started may not know the pod yet.
    pub async fn says(&self, script: &str, wanted: &str) {
        crate::world::until(&format!("{script:?} says {wanted:?}"), || async {
            match self.run(script).await {
                said if said == wanted => Ok(()),
                said => Err(said),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_user_goes_away_runs_on_as_in_the_reference() {
    let world = crate::world::World::new();
    world
        .run("p", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    world.running("p").await;
    let shell = Shell::of(&world).await;
    for (name, more) in [("plain", ""), ("terminal", "&tty=true&stdin=true")] {
        // It says more than any buffer holds: somebody must read that for it to go on.
        let script = format!(
            "n=0; while true; do n=$((n+1)); echo $n > /tmp/new; mv /tmp/new /tmp/{name}; head -c 65536 /dev/zero; sleep 0.02; done"
        );
        let mut socket = shell.begin(&script, more).await;
        socket.message().await;
        socket.message().await;
        drop(socket);
        let mut last = 0;
        // By the last of these the server knows for long that nobody is there.
        for _ in 0..5 {
            last = crate::world::until("it counts on", || async {
                let said = shell.run(&format!("cat /tmp/{name}")).await;
                match said.trim().parse::<u64>() {
                    Ok(now) if now > last + 5 => Ok(now),
                    _ => Err(said),
                }
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_beside_a_container_s_program_with_its_files_and_variables() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let world = crate::world::World::new();
    let mut container = sh("c", "echo here > /tmp/file; exec sleep 1000");
    container["env"] = json!([{"name": "WHO", "value": "me"}]);
    world.run("p", json!({"containers": [container]})).await;
    world.running("p").await;
    let listening = world.cluster.listen(ListenOptions::default()).await.unwrap();
    let way = World { listening };
    crate::world::until("the file is there", || async {
        let script = "cat%20/tmp/file;%20echo%20$WHO;%20echo%20oops%20%3E%262;%20exit%207";
        let query = format!("command=sh&command=-c&command={script}&stdout=true&stderr=true");
        let mut socket = Socket::exec(&way, PROTOCOL, &query).await;
        let (out, err, status) = finish(&mut socket).await;
        let code = status.pointer("/details/causes/0/message").cloned();
        if (out.as_str(), err.as_str(), code) == ("here\nme\n", "oops\n", Some(json!("7"))) {
            Ok(())
        } else {
            Err(format!("{out:?} {err:?} {status}"))
        }
    })
    .await;
    let mut socket = Socket::exec(&way, PROTOCOL, "command=head&command=-1&stdin=true&stdout=true").await;
    socket.send(0x82, b"\0said\n").await;
    let (out, _, status) = finish(&mut socket).await;
    assert_eq!((out.as_str(), &status["status"]), ("said\n", &json!("Success")));
}
