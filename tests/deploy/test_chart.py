"""The Helm chart: rendered by Helm where it is, else by the part of its language that the chart uses."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.deploy.files import DEPLOY, ROOT, require_command
from tests.deploy.go_templates import Chart

CHART = DEPLOY / "helm" / "fairlead"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
VALIDATE = ROOT / ".venv" / "tools" / "kubernetes" / "bin" / "kubernetes-validate"
EVERYTHING: dict[str, Any] = {
    "config": '[commands.backup]\nexecutable = "/bin/true"\n',
    "image": {"repository": "registry.example.com/shop", "tag": "7", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "envFrom": [{"secretRef": {"name": "shop"}}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "jobs", "operator": "Exists"}],
    "podAnnotations": {"example.com/team": "jobs"},
    "serviceAccountName": "shop",
    "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "fairlead"}},
        }
    ],
    "serve": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "jobs.example.com",
            "tlsSecret": "jobs-tls",
            "annotations": {"example.com/size": "8m"},
            "trustedProxies": "10.42.0.0/16",
        }
    },
    "workers": {
        "default": {"keda": {"enabled": True, "definition": "greet"}},
        "gpu": {"app": "", "replicas": 1, "concurrency": 4, "args": ["--label", "gpu=true"]},
    },
}


def merge(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Values as Helm merges them."""
    merged = dict(base)
    for name, value in more.items():
        known = merged.get(name)
        merged[name] = merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def render(more: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifests, without Helm."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    data = {
        "Values": merge(VALUES, more),
        "Chart": {"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
        "Release": {"Name": "fairlead", "Service": "Helm"},
    }
    files = {path.name: path.read_text("utf-8") for path in (CHART / "templates").iterdir()}
    chart = Chart(files)
    texts = [chart.render(name, data) for name in sorted(files) if name.endswith(".yaml")]
    chart.render("NOTES.txt", data)
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def by_name(found: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pods of Deployments and Jobs, by their names."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in found
        if one["kind"] in ("Deployment", "Job")
    }


@pytest.fixture(scope="module", params=[{}, EVERYTHING], ids=["defaults", "everything"])
def manifests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(request.param)


def test_it_has_what_is_needed_by_default() -> None:
    assert set(by_name(render({}))) == {
        ("Job", "fairlead-migrate"),
        ("Deployment", "fairlead-serve"),
        ("Service", "fairlead-serve"),
        ("PodDisruptionBudget", "fairlead-serve"),
        ("Deployment", "fairlead-scheduler"),
        ("Deployment", "fairlead-worker-default"),
    }


def test_every_container_runs_a_command_that_exists(manifests: list[dict[str, Any]]) -> None:
    for pod in pods(manifests).values():
        [container] = pod["spec"]["containers"]
        require_command(container["args"])


def test_every_container_has_the_database_and_settings_that_exist(manifests: list[dict[str, Any]]) -> None:
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    for pod in pods(manifests).values():
        [container] = pod["spec"]["containers"]
        names = [one["name"] for one in container["env"]]
        assert "FAIRLEAD_DATABASE_URL" in names
        assert [name for name in names if f"`{name}`" not in settings] == []
        assert all(isinstance(one.get("value", ""), str) for one in container["env"])


def test_no_container_is_root_or_may_write_outside_tmp(manifests: list[dict[str, Any]]) -> None:
    for pod in pods(manifests).values():
        [container] = pod["spec"]["containers"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounted = {one["name"] for one in container["volumeMounts"]}
        assert mounted == {one["name"] for one in pod["spec"]["volumes"]}


def test_selectors_find_their_pods(manifests: list[dict[str, Any]]) -> None:
    named = by_name(manifests)
    for (kind, name), one in named.items():
        if kind in ("Deployment", "PodDisruptionBudget"):
            wanted = one["spec"]["selector"]["matchLabels"]
        elif kind == "Service":
            wanted = one["spec"]["selector"]
        else:
            continue
        labels = named["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        assert wanted.items() <= labels.items(), name
    selected = [
        one["spec"]["selector"]["matchLabels"] for (kind, _), one in named.items() if kind == "Deployment"
    ]
    assert len({json.dumps(labels, sort_keys=True) for labels in selected}) == len(selected)


def test_a_pod_has_more_time_to_stop_than_its_jobs(manifests: list[dict[str, Any]]) -> None:
    assert all(pod["spec"]["terminationGracePeriodSeconds"] > 35 for pod in pods(manifests).values())


def test_the_migration_runs_before_everything_else(manifests: list[dict[str, Any]]) -> None:
    hook = "helm.sh/hook"
    named = by_name(manifests)
    assert named["Job", "fairlead-migrate"]["metadata"]["annotations"][hook] == "pre-install,pre-upgrade"
    if ("ConfigMap", "fairlead-migrate-config") in named:  # which the migration needs
        annotations = named["ConfigMap", "fairlead-migrate-config"]["metadata"]["annotations"]
        assert (annotations[hook], annotations[f"{hook}-weight"]) == ("pre-install,pre-upgrade", "-1")


def test_a_changed_config_starts_new_pods_and_goes_with_its_release() -> None:
    manifests = render(EVERYTHING)
    config = by_name(manifests)["ConfigMap", "fairlead-config"]
    assert "annotations" not in config["metadata"]  # a hook would stay after a rollback and an uninstall
    changed = render(merge(EVERYTHING, {"config": "[commands.other]\n"}))
    for name, pod in pods(manifests).items():
        [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "config"]
        if name == "fairlead-migrate":
            assert volume["configMap"]["name"] == "fairlead-migrate-config"
            continue
        assert volume["configMap"]["name"] == "fairlead-config"
        assert pod["metadata"]["annotations"] != pods(changed)[name]["metadata"]["annotations"]
        assert pod["metadata"]["annotations"]["example.com/team"] == "jobs"


def test_an_ingress_needs_the_addresses_that_the_server_believes() -> None:
    [serve] = pods(render(EVERYTHING))["fairlead-serve"]["spec"]["containers"]
    assert {"name": "FORWARDED_ALLOW_IPS", "value": "10.42.0.0/16"} in serve["env"]
    with pytest.raises(AssertionError, match="trustedProxies is missing"):
        render(merge(EVERYTHING, {"serve": {"ingress": {"trustedProxies": ""}}}))


def test_a_scaled_worker_has_no_number_of_its_own() -> None:
    named = by_name(render(EVERYTHING))
    assert "replicas" not in named["Deployment", "fairlead-worker-default"]["spec"]
    assert named["Deployment", "fairlead-worker-gpu"]["spec"]["replicas"] == 1
    [trigger] = named["ScaledObject", "fairlead-worker-default"]["spec"]["triggers"]
    example = list(yaml.safe_load_all((DEPLOY / "keda" / "scaledobject.yaml").read_text("utf-8")))
    assert trigger["metadata"] == example[1]["spec"]["triggers"][0]["metadata"]


# Values


def check_values(values: dict[str, Any]) -> list[str]:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return [one.message for one in jsonschema_rs.validator_for(schema).iter_errors(values)]


def test_values_fit_their_schema_and_the_schema_knows_each() -> None:
    assert check_values(VALUES) == []
    assert check_values(merge(VALUES, EVERYTHING)) == []
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert VALUES.keys() == schema["properties"].keys() - {"global"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 3},
        {"env": {"FAIRLEAD_MAX_PAYLOAD_BYTES": 1000000}},  # Helm would write 1e+06
        {"terminationGracePeriodSeconds": 30},
        {"workers": {"GPU": {"app": "", "replicas": 1, "concurrency": 1}}},
        {"workers": {"gpu": {"app": "", "replicas": 1, "concurrency": 0}}},
        {"database": {"existingSecret": ""}},
        {"serve": {"port": "8000"}},
        {"podAnnotations": {"example.com/port": 8000}},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    assert len(check_values(merge(VALUES, wrong))) == 1


def test_the_chart_has_the_version_of_fairlead() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    source = (ROOT / "src" / "fairlead" / "version.py").read_text("utf-8")
    assert f'"{about["appVersion"]}"' in source
    assert about["version"] == about["appVersion"]


# With tools, where they are


@pytest.mark.thorough
def test_kubernetes_takes_the_manifests(manifests: list[dict[str, Any]], tmp_path: Path) -> None:
    if not VALIDATE.exists():
        pytest.skip(
            "needs kubernetes-validate: make tools TOOLS=thorough. Not checked: the schemas of Kubernetes"
        )
    ours = [one for one in manifests if not one["apiVersion"].startswith("keda.sh/")]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(ours))
    argv = [str(VALIDATE), "--strict", "--kubernetes-version", "1.30", str(tmp_path / "all.yaml")]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_lints_it_and_renders_the_same(values: dict[str, Any], tmp_path: Path) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("needs helm. Not checked: helm lint, and that Helm renders what the tests do")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    options = [str(CHART), "--values", str(tmp_path / "values.yaml")]
    linted = subprocess.run([helm, "lint", "--strict", *options], check=False, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    rendered = subprocess.run(
        [helm, "template", "fairlead", *options], check=True, capture_output=True, text=True
    ).stdout
    assert by_name([one for one in yaml.safe_load_all(rendered) if one]) == by_name(render(values))


def test_the_renderer_refuses_what_it_does_not_know() -> None:
    for text in ("{{ if .a }}b{{ else }}c{{ end }}", "{{ .a | b64enc }}", "{{ lookup .a }}", "{{ if .a }}b"):
        with pytest.raises((AssertionError, ValueError), match=re.compile("known|no end")):
            Chart({"one": text}).render("one", {"a": "b"})
