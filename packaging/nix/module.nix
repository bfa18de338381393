# NixOS: `services.floe-serve` serves the store of the machine as a binary cache.
#
# systemd holds the sockets, so that a restart loses no request. The units are the packaged ones.
# Evaluated with the library of nixpkgs and stubs of NixOS (module-check.nix). The units with these
# settings have run under systemd 252 of Debian, and not on NixOS yet.
{
  config,
  lib,
  pkgs,
  ...
}:

let
  cfg = config.services.floe-serve;
  format = pkgs.formats.toml { };
  file = format.generate "floe-serve.toml" cfg.settings;
  words = [
    (lib.getExe cfg.package)
    "serve"
    "--config"
    "${file}"
  ]
  ++ lib.optionals (cfg.secretKeyFile != null) [
    "--secret-key-file"
    "\${CREDENTIALS_DIRECTORY}/key"
  ]
  ++ lib.optionals (cfg.authFile != null) [
    "--auth-file"
    "\${CREDENTIALS_DIRECTORY}/logins"
  ];

  # The keys that name addresses. The sockets of systemd would take their place without a message.
  addressKeys = lib.filter (key: cfg.settings ? ${key}) [
    "listen"
    "host"
    "port"
    "socket"
    "bind"
    "metrics_listen"
  ];

  writesStore = cfg.settings ? receive_into_store;
  # The key whose directory receives uploads. `floe serve` refuses both at once.
  uploadKey =
    if writesStore then
      "receive_into_store"
    else if cfg.settings ? receive then
      "receive"
    else
      null;
  # The directory below /var/lib, as StateDirectory names it, or null if it is elsewhere. systemd
  # keeps the directories of transient users in /var/lib/private.
  stateDirectory =
    let
      name = "[A-Za-z0-9_][A-Za-z0-9_.+-]*";
      found = builtins.match "/var/lib/(${name}(/${name})*)/?" (toString cfg.settings.${uploadKey});
    in
    if found == null || lib.hasPrefix "private/" "${lib.head found}/" then null else lib.head found;
in
{
  options.services.floe-serve = {
    enable = lib.mkEnableOption "floe serve, which serves the Nix store as a binary cache";

    package = lib.mkPackageOption pkgs "floe" { };

    secretKeyFile = lib.mkOption {
      type = lib.types.nullOr lib.types.str;
      default = null;
      example = "/var/lib/secrets/cache.key";
      description = "The file of the key that signs all paths, as `floe key generate` makes it.";
    };

    authFile = lib.mkOption {
      type = lib.types.nullOr lib.types.str;
      default = null;
      example = "/var/lib/secrets/cache.logins";
      description = ''
        The file of the logins that clients need, as `floe serve auth` makes it. systemd reads it when
        the service starts, so changes need a restart of the service.
      '';
    };

    supplementaryGroups = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ ];
      example = [ "acme" ];
      description = ''
        Groups whose files the server may read. The certificates of `security.acme` belong to the
        group acme.
      '';
    };

    listenStreams = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ "127.0.0.1:5000" ];
      example = [ "443" ];
      description = "The addresses, ports and Unix sockets on which clients connect.";
    };

    metricsListenStreams = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ ];
      example = [ "127.0.0.1:5001" ];
      description = "The addresses for `/metrics`, instead of those of all clients.";
    };

    openFirewall = lib.mkOption {
      type = lib.types.bool;
      default = false;
      description = "Whether to open the ports of `listenStreams` that have no address.";
    };

    settings = lib.mkOption {
      type = format.type;
      default = { };
      example = {
        priority = 40;
        receive = "/var/lib/floe";
      };
      description = ''
        The configuration file of `floe serve`, with the keys of docs/operating.md. The directory of
        `receive` or `receive_into_store` is below /var/lib, and systemd creates it.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = addressKeys == [ ];
        message = "services.floe-serve: use listenStreams and metricsListenStreams instead of ${
          lib.concatMapStringsSep ", " (key: "settings.${key}") addressKeys
        }, because systemd holds the sockets";
      }
      {
        assertion = uploadKey == null || stateDirectory != null;
        message = "services.floe-serve: settings.${toString uploadKey} must be a directory below /var/lib, such as /var/lib/floe, because systemd creates it and lets the server write to it; mount another disk there if you need its space";
      }
      {
        assertion = !(cfg.settings ? auth_file) || writesStore;
        message = "services.floe-serve: use authFile instead of settings.auth_file, because the transient user of the server cannot read the file";
      }
    ];

    systemd.packages = [ cfg.package ];

    # The empty words here and below replace those of the packaged units.
    systemd.sockets.floe = {
      wantedBy = [ "sockets.target" ];
      listenStreams = [ "" ] ++ cfg.listenStreams;
    };

    systemd.sockets.floe-metrics = lib.mkIf (cfg.metricsListenStreams != [ ]) {
      wantedBy = [ "sockets.target" ];
      listenStreams = [ "" ] ++ cfg.metricsListenStreams;
    };

    systemd.services.floe = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig = {
        ExecStart = [
          ""
          (lib.concatStringsSep " " words)
        ];
        # systemd on NixOS finds no programs without their paths.
        ExecReload = [
          ""
          "${pkgs.coreutils}/bin/kill -HUP $MAINPID"
        ];
        LoadCredential = [
          ""
        ]
        ++ lib.optional (cfg.secretKeyFile != null) "key:${cfg.secretKeyFile}"
        ++ lib.optional (cfg.authFile != null) "logins:${cfg.authFile}";
      }
      // lib.optionalAttrs (cfg.supplementaryGroups != [ ]) {
        SupplementaryGroups = cfg.supplementaryGroups;
      }
      // lib.optionalAttrs (uploadKey != null && stateDirectory != null) {
        StateDirectory = stateDirectory;
        # Other users of the machine need a login too.
        StateDirectoryMode = "0700";
      }
      // lib.optionalAttrs writesStore {
        # Only root may write to the store.
        DynamicUser = false;
        User = "root";
        ReadWritePaths = [ "/nix" ];
        # The store is mounted read-only. The server makes it writable in a mount namespace of its
        # own, which needs CAP_SYS_ADMIN. The other rights are those of root over files that are
        # read-only or belong to another user.
        CapabilityBoundingSet = [
          "CAP_CHOWN"
          "CAP_DAC_OVERRIDE"
          "CAP_FOWNER"
          "CAP_SYS_ADMIN"
        ];
        RestrictNamespaces = "mnt";
        SystemCallFilter = [
          "@chown"
          "mount"
        ];
        # The server removes what other processes of floe have left in the store when they were
        # killed. It must see which of them still run.
        ProtectProc = "default";
        # Other programs read what the server creates in /nix/var.
        UMask = "0022";
      };
    };

    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall (
      map lib.toInt (lib.filter (stream: builtins.match "[0-9]+" stream != null) cfg.listenStreams)
    );
  };
}
