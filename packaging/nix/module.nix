# NixOS: `services.floe-serve` serves the store of the machine as a binary cache.
#
# systemd holds the sockets, so that a restart loses no request. The unit is the packaged one.
# Evaluated with the library of nixpkgs and stubs of NixOS (module-check.nix). Not run yet.
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
  writesStore = cfg.settings ? receive_into_store;
  words = [
    (lib.getExe cfg.package)
    "serve"
    "--config"
    "${file}"
  ]
  ++ lib.optionals (cfg.secretKeyFile != null) [
    "--secret-key-file"
    "\${CREDENTIALS_DIRECTORY}/key"
  ];
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

    listenStreams = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ "127.0.0.1:5000" ];
      example = [ "443" ];
      description = "The addresses, ports and Unix sockets on which clients connect.";
    };

    metricsListenStreams = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ ];
      example = [ "127.0.0.1:9100" ];
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
        auth_file = "/etc/floe/logins";
      };
      description = "The configuration file of `floe serve`, with the keys of docs/operating.md.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = !(cfg.settings ? listen || cfg.settings ? metrics_listen);
        message = "services.floe-serve: use listenStreams and metricsListenStreams, because systemd holds the sockets";
      }
    ];

    systemd.packages = [ cfg.package ];

    systemd.sockets.floe = {
      wantedBy = [ "sockets.target" ];
      inherit (cfg) listenStreams;
    };

    systemd.sockets.floe-metrics = lib.mkIf (cfg.metricsListenStreams != [ ]) {
      wantedBy = [ "sockets.target" ];
      listenStreams = cfg.metricsListenStreams;
      socketConfig = {
        FileDescriptorName = "metrics";
        Service = "floe.service";
      };
    };

    # The empty words replace those of the packaged unit.
    systemd.services.floe = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig = {
        ExecStart = [
          ""
          (lib.concatStringsSep " " words)
        ];
        LoadCredential = [
          ""
        ]
        ++ lib.optional (cfg.secretKeyFile != null) "key:${cfg.secretKeyFile}";
      }
      // lib.optionalAttrs writesStore {
        # Only root may write to the store.
        DynamicUser = false;
        User = "root";
        ReadWritePaths = [
          "/nix"
          cfg.settings.receive_into_store
        ];
      };
    };

    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall (
      map lib.toInt (lib.filter (stream: builtins.match "[0-9]+" stream != null) cfg.listenStreams)
    );
  };
}
