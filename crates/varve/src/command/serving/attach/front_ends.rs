//! The ways to an attached disk: an NBD server, a machine, a mount, and the page of metrics.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use serde_json::json;
use varve_attach::PublishedDisk;
use varve_serve::TcpServer;
use varve_serve::fuse::{self, Mounted};
use varve_serve::nbd::{Endpoint, NbdServer, OneDisk, Overlay};
use varve_serve::published::PublishedFolder;

use super::attached_disk::AttachedDisk;
use super::attached_export::{AttachedExport, kept_overlay, nbd_settings};
use super::described_machine::machine;
use super::{LOOK, figures, shown};
use crate::arguments::AttachArgs;
use crate::command::serving::boot::machine_run::MachineStarter;
use crate::command::serving::serve::{nbd_address, not_listening, unnamed_file};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// The requested front ends of an attached disk.
pub(super) struct AttachFrontEnds {
    server: Option<NbdServer>,
    machine: Option<MachineStarter>,
    mounted: Option<Mounted>,
    metrics: Option<TcpServer>,
}

impl AttachFrontEnds {
    /// Starts them. A machine is only prepared.
    pub(super) fn start(args: &AttachArgs, attached: &AttachedDisk, export: &AttachedExport) -> Result<Self> {
        let disk = &attached.disk;
        let server = args.nbd.as_ref().map(|at| nbd_server(args, at, disk, export)).transpose()?;
        let machine = args.boot.then(|| machine(args, disk, export)).transpose()?;
        let mounted = args.mount.as_deref().map(|folder| mount(&attached.place, folder, disk)).transpose()?;
        let metrics = args.metrics.map(|address| {
            let (source, serials) = (Arc::downgrade(disk.source()), Arc::clone(&attached.serials));
            varve_serve::metrics::serve(address, false, Arc::new(move || figures::page(&source, &serials)))
        });
        let metrics = metrics.transpose().map_err(not_listening)?;
        Ok(Self { server, machine, mounted, metrics })
    }

    /// Returns true if somebody can read the disk.
    pub(super) fn serve_the_disk(&self) -> bool {
        self.server.is_some() || self.machine.is_some() || self.mounted.is_some()
    }

    /// Prints the disk, and the addresses of the front ends.
    pub(super) fn announce(&self, invocation: &Invocation, attached: &AttachedDisk) {
        let nbd = self.server.as_ref().map(|server| nbd_address(server.endpoint(), ""));
        let mounted = self.mounted.as_ref().map(|mounted| mounted.at().display().to_string());
        let metrics = self.metrics.as_ref().map(|metrics| format!("http://{}/metrics", metrics.address()));
        let (edition, image) = (&attached.edition, attached.disk.image());
        let serial = edition.head.fields().serial;
        if invocation.json {
            let fields = json!({
                "name": image.name,
                "time": moment::rfc3339(image.time),
                "size": image.shape.size,
                "serial": serial,
                "cipher": image.cipher.to_string(),
                "from_cache": edition.cached_because.is_some(),
                "nbd": nbd,
                "mounted": mounted,
                "metrics": metrics,
            });
            say::record("attached", fields);
            return;
        }
        say!("{} of edition {serial}: {}", shown(image), show::bytes(image.shape.size));
        nbd.iter().for_each(|address| say!("serving at {address}"));
        metrics.iter().for_each(|address| say!("metrics at {address}"));
        if let Some(at) = mounted {
            say!("mounted on {at}; unmount it with Ctrl-C or `fusermount3 -u {at}`");
        }
    }

    /// Runs the machine until it ends, which ends the program, too. `None` if there is no machine.
    pub(super) fn run_machine(
        &mut self,
        invocation: &Invocation,
        args: &AttachArgs,
        disk: &PublishedDisk,
        is_over: &Arc<AtomicBool>,
    ) -> Option<Result<CommandOutcome>> {
        let mut machine = self.machine.take()?;
        if !invocation.quiet && !invocation.json {
            machine.announce(&disk.image().name, disk.image().time);
        }
        let booted = machine.run(invocation, &args.machine, is_over);
        is_over.store(true, Ordering::Relaxed);
        Some(booted)
    }

    /// Waits until `is_over` is set, or until another program unmounts the disk.
    pub(super) fn wait(&self, is_over: &AtomicBool) {
        let has_ended = || self.mounted.as_ref().is_some_and(Mounted::has_ended);
        while self.serve_the_disk() && !is_over.load(Ordering::Relaxed) && !has_ended() {
            std::thread::park_timeout(LOOK);
        }
    }

    /// Answers the requests in flight, and unmounts the disk.
    pub(super) fn close(self) -> Result<()> {
        drop(self.metrics);
        if let Some(server) = self.server {
            server.drain();
        }
        if let Some(mounted) = self.mounted {
            let at = mounted.at().display().to_string();
            mounted.unmount().with_context(|| format!("{at} is still mounted"))?;
        }
        Ok(())
    }
}

fn nbd_server(
    args: &AttachArgs,
    endpoint: &Endpoint,
    disk: &PublishedDisk,
    export: &AttachedExport,
) -> Result<NbdServer> {
    let (image, export) = (disk.image(), &export.disk);
    let served = match kept_overlay(args, image, export)? {
        Some(overlay) => overlay,
        None if args.writable => Arc::new(Overlay::throw_away(Arc::clone(export), unnamed_file()?)?),
        None => Arc::clone(export),
    };
    let disks = OneDisk::new(vec![image.name.clone(), shown(image)], shown(image), served);
    NbdServer::start(endpoint, Arc::new(disks), nbd_settings())
        .with_context(|| format!("cannot listen at {endpoint}"))
}

fn mount(place: &str, folder: &Path, disk: &Arc<PublishedDisk>) -> Result<Mounted> {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let files = PublishedFolder::new(Arc::clone(disk), owner);
    let options = fuse::MountOptions { source: format!("varve:{place}"), allow_other: false };
    Ok(fuse::mount(Arc::new(files), folder, &options)?)
}
