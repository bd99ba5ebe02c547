//! The images on the node, written as an OCI archive without a registry: Debian's static busybox with all its names, as
//! what pods are started from and as what holds a pod's namespaces.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::setup::debian::Packages;
use crate::{paths, process};

pub(super) const PAUSE: &str = "usher.local/pause:1";
/// As containerd spells what pods call `busybox:1`.
const BUSYBOX: &str = "docker.io/library/busybox:1";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub(super) fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Below `home`; returns the archive.
pub(super) fn write(home: &Path, packages: &Packages) -> Result<PathBuf> {
    let work = home.join("images");
    paths::remove(&work)?;
    let layout = Layout {
        root: work.join("layout"),
    };
    paths::create_folder(&layout.root.join("blobs/sha256"))?;
    let files = root_file_system(&work.join("root"), packages)?;
    let layer = work.join("layer.tar");
    tar(&files, &layer)?;
    let layer = std::fs::read(&layer).map_err(Error::at("read", &layer))?;
    let manifests = [
        layout.image(BUSYBOX, &["sh"], &layer)?,
        layout.image(PAUSE, &["/bin/sleep", "infinity"], &layer)?,
    ];
    let index =
        json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests});
    write_file(&layout.root.join("index.json"), index.to_string().as_bytes())?;
    write_file(&layout.root.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let archive = home.join("images.tar");
    tar(&layout.root, &archive)?;
    paths::remove(&work)?;
    Ok(archive)
}

struct Layout {
    root: PathBuf,
}

/// Bytes in the layout, as others refer to them.
struct Blob {
    media_type: &'static str,
    digest: String,
    size: usize,
}

impl Blob {
    fn reference(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.size})
    }
}

impl Layout {
    /// Writes an image of one layer that runs `command`; returns what the index says of it.
    fn image(&self, name: &str, command: &[&str], layer: &[u8]) -> Result<Value> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let layer = self.blob("application/vnd.oci.image.layer.v1.tar", layer)?;
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let config = json!({
            "architecture": architecture, "os": "linux", "config": {"Cmd": command, "Env": [path]},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        });
        let config = self.blob(
            "application/vnd.oci.image.config.v1+json",
            config.to_string().as_bytes(),
        )?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": config.reference(), "layers": [layer.reference()],
        });
        let manifest = self.blob(MANIFEST, manifest.to_string().as_bytes())?;
        Ok(json!({
            "mediaType": manifest.media_type, "digest": manifest.digest, "size": manifest.size,
            "annotations": {"io.containerd.image.name": name},
        }))
    }

    fn blob(&self, media_type: &'static str, bytes: &[u8]) -> Result<Blob> {
        let sum = checksum(bytes);
        write_file(&self.root.join("blobs/sha256").join(&sum), bytes)?;
        Ok(Blob {
            media_type,
            digest: format!("sha256:{sum}"),
            size: bytes.len(),
        })
    }
}

fn root_file_system(root: &Path, packages: &Packages) -> Result<PathBuf> {
    for folder in ["bin", "etc", "root", "tmp", "var"] {
        paths::create_folder(&root.join(folder))?;
    }
    let tmp = root.join("tmp");
    std::fs::set_permissions(&tmp, std::fs::Permissions::from_mode(0o1777)).map_err(Error::at("open", &tmp))?;
    let users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
    write_file(&root.join("etc/passwd"), users.as_bytes())?;
    write_file(&root.join("etc/group"), b"root:x:0:\nnogroup:x:65534:\n")?;
    let busybox = packages.file("bin/busybox");
    let place = root.join("bin/busybox");
    std::fs::copy(&busybox, &place).map_err(Error::at("copy", &busybox))?;
    let names = process::ask(Command::new(&busybox).arg("--list"))
        .ok_or_else(|| Error::Machine(format!("{} does not run", busybox.display())))?;
    for name in names.lines().filter(|name| *name != "busybox") {
        let link = root.join("bin").join(name);
        symlink("busybox", &link).map_err(Error::at("create", &link))?;
    }
    Ok(root.to_owned())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(Error::at("write", path))
}

/// The same bytes from the same files, whoever owns them and whenever they were made.
fn tar(folder: &Path, archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"])
        .arg("--create")
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(folder)
        .arg(".");
    match process::ask(&mut tar) {
        Some(_) => Ok(()),
        None => Err(Error::Machine(format!("tar cannot pack {}", folder.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_refers_to_what_was_written() {
        let root = paths::temporary_folder("usher-images").unwrap();
        let layout = Layout { root: root.clone() };
        paths::create_folder(&root.join("blobs/sha256")).unwrap();
        let entry = layout.image("a:1", &["sh"], b"layer").unwrap();
        let read = |digest: &Value| -> Value {
            let sum = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
            let text = paths::read(&root.join("blobs/sha256").join(sum)).unwrap();
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        let manifest = read(entry.get("digest").unwrap());
        let config = read(manifest.pointer("/config/digest").unwrap());
        let layer = manifest.pointer("/layers/0/digest").unwrap();
        assert_eq!(read(layer), "layer");
        assert_eq!(config.pointer("/rootfs/diff_ids/0").unwrap(), layer);
        assert_eq!(config.pointer("/config/Cmd").unwrap(), &json!(["sh"]));
        paths::remove(&root).unwrap();
    }
}
