# Two stages: pip and its cache stay behind. The result runs as a user without a name or a shell, any user id will do
# (docker run --user, OpenShift's random ones), and handles signals itself: no init process is needed.
FROM python:3.13-slim AS build
WORKDIR /build
RUN python -m venv /opt/clustercheckd
COPY requirements.txt .
RUN /opt/clustercheckd/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.txt
COPY app app
# Straight into the environment: with only one package there is nothing for a build backend to do, and nothing to fetch.
RUN cp -r app "$(/opt/clustercheckd/bin/python -c 'import site; print(site.getsitepackages()[0])')" \
 && for command in clustercheckd=app.__main__:main clustercheck=app.commands.clustercheck:run; do \
      entry="${command#*=}"; \
      printf '#!/opt/clustercheckd/bin/python\nimport sys\nfrom %s import %s\nsys.exit(%s())\n' \
        "${entry%:*}" "${entry#*:}" "${entry#*:}" \
        > "/opt/clustercheckd/bin/${command%=*}"; \
    done \
 && chmod +x /opt/clustercheckd/bin/clustercheckd /opt/clustercheckd/bin/clustercheck

FROM python:3.13-slim
COPY --from=build /opt/clustercheckd /opt/clustercheckd
ENV PATH=/opt/clustercheckd/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9200
STOPSIGNAL SIGTERM
# The exec form: clustercheckd is process 1 and gets the signals. Liveness is /livez; a health check of Docker's own
# would ask the same, with a process for each question.
ENTRYPOINT ["clustercheckd"]
